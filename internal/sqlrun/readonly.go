package sqlrun

import (
	"context"
	"errors"
	"fmt"

	"github.com/dbcron/dbcron/internal/engine"
)

// ErrReadOnly means that the server takes no writes: it is a standby or a replica, was set read-only,
// or is a node that its cluster has left behind. The error is [Dialect.Unavailable]: after a failover,
// another connection may lead to a server that takes writes.
var ErrReadOnly = errors.New("the server takes no writes")

// WhyReadOnly returns why the server takes no writes; "" means that it does. It changes nothing. If
// the server takes none, the connection is removed from the pool, so that the next one may lead to
// another server.
func (db *DB) WhyReadOnly(ctx context.Context) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	c, err := db.pool.Conn(ctx)
	if err != nil {
		return "", db.unconnected(ctx, fmt.Errorf("connect: %w", err))
	}
	if why, err = db.Dialect.WhyReadOnly(ctx, c); err != nil || why != "" {
		engine.Discard(c)
		return why, err
	}
	return "", c.Close()
}

// Writable returns the finding about why a server takes no writes.
func Writable(why, advice string) Finding {
	f := Finding{Subject: "writable", OK: why == "", Detail: "the server takes writes", Advice: advice, readOnly: true}
	if !f.OK {
		f.Detail = ErrReadOnly.Error() + ": " + why
	}
	return f
}
