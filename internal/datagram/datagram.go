// Package datagram sends and receives the datagrams of doorbells.
package datagram

import (
	"context"
	"database/sql"
	"net"
	"os"
	"strings"
	"sync/atomic"
)

// A Network is what datagrams go through.
type Network interface {
	// Listen receives what is sent to an address; port 0 is any.
	Listen(ctx context.Context, at string) (net.PacketConn, error)
	// Dial returns a connection that sends to an address. from is the sender's pool of connections to the database.
	Dial(ctx context.Context, from *sql.DB, to string) (net.Conn, error)
}

type udp struct{}

func (udp) Listen(ctx context.Context, at string) (net.PacketConn, error) {
	return (&net.ListenConfig{}).ListenPacket(ctx, "udp", at)
}

func (udp) Dial(ctx context.Context, _ *sql.DB, to string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "udp", to)
}

// virtual is a simulated network; nil: there is none.
var virtual atomic.Pointer[Network]

// Virtual has a simulated network until restore is called: in virtual time a real one would deliver whenever real time has
// it. It panics in a program that is not a test.
func Virtual(n Network) (restore func()) {
	if !strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test") {
		panic("datagram: only tests may do without a network")
	}
	virtual.Store(&n)
	return func() { virtual.Store(nil) }
}

// Net returns the host's network.
func Net() Network {
	if n := virtual.Load(); n != nil {
		return *n
	}
	return udp{}
}
