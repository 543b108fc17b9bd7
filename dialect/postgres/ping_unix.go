//go:build unix

package postgres

import (
	"errors"
	"net"
	"syscall"
)

// wouldBlock reports whether a read of a connection would wait. It takes no bytes.
func wouldBlock(c net.Conn) (waits bool) {
	own, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := own.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		waits = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && waits
}
