//go:build unix

package postgres

import (
	"errors"
	"net"
	"syscall"
)

// wouldBlock reports whether a read of a connection would wait. It takes no bytes, and does not wait for
// others that read: pgx may have left a read in the background, which ends only with the next bytes.
func wouldBlock(c net.Conn) (waits bool) {
	own, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := own.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { // raw.Read would wait for them
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		waits = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && waits
}
