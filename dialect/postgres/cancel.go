package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A canceller asks the server to cancel a statement whose context ends, and waits for its end: it must not be
// granted a lock after nobody wants it any more.
//
// PostgreSQL does not say when such a request has been carried out, or that it came too late, and a busy server
// may carry it out long afterwards. So unless the server has answered that the statement is cancelled, the
// connection is closed: the request would cancel the next statement of it, which somebody else waits for.
type canceller struct {
	conn    *pgconn.PgConn
	request pgconn.CancelRequestContextWatcherHandler
	heard   atomic.Bool // the server has answered that it has cancelled a statement
}

// The key of a connection's canceller among the connection's custom data.
const itsCanceller = "dbcron: canceller"

func newCanceller(c *pgconn.PgConn) *canceller {
	k := &canceller{conn: c, request: pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: time.Second}}
	c.CustomData()[itsCanceller] = k
	return k
}

// hear takes note of an error of a connection's server.
func hear(c *pgconn.PgConn, e *pgconn.PgError) {
	if k, ok := c.CustomData()[itsCanceller].(*canceller); ok && e.Code == "57014" { // query_canceled
		k.heard.Store(true)
	}
}

func (k *canceller) HandleCancel(ctx context.Context) {
	k.heard.Store(false)
	k.request.HandleCancel(ctx)
}

func (k *canceller) HandleUnwatchAfterCancel() {
	k.request.HandleUnwatchAfterCancel()
	if !k.heard.Load() {
		_ = k.conn.Conn().SetDeadline(time.Now().Add(time.Second)) //nolint:forbidigo // a socket's deadline is the host's
		_ = k.conn.Close(context.Background())
	}
}
