package postgres

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/internal/sqlconn"
)

// pings decides when a connection is pinged before its next statement.
var pings = stdlib.OptionShouldPing(shouldPing)

// pgx pings a connection that was idle for more than a second: whether a statement was done that meets
// a dead connection cannot always be told. An idle worker has a statement a second on each of its own
// connections, so a ping would double its transactions. It repeats its statements anyway. There it is
// enough that the socket has nothing to read: a server that ends says so, and a closed connection
// reads as its end.
const (
	pingAfter     = time.Second // pgx's own
	pingLentAfter = 30 * time.Second
)

func shouldPing(ctx context.Context, p stdlib.ShouldPingParams) bool {
	if !sqlconn.IsLent(ctx) || p.IdleDuration > pingLentAfter {
		return p.IdleDuration > pingAfter
	}
	return p.IdleDuration > pingAfter && !silent(p.Conn.PgConn().Conn())
}

// silent reports whether a connection is open as far as this host knows, with nothing to read.
func silent(c net.Conn) bool {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		c = secure.NetConn()
	}
	return wouldBlock(c)
}
