//go:build !unix

package postgres

import "net"

// wouldBlock cannot tell here.
func wouldBlock(net.Conn) bool { return false }
