package dialect

import (
	"context"
	"errors"
	"fmt"

	"github.com/dbcron/dbcron/dialect/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlconn"
)

// Listen calls heard for each notification that is sent to channel, until ctx
// ends or the connection does, and ready once from when on all are heard. It
// takes a connection out of the pool meanwhile. On engines without
// notifications it returns errors.ErrUnsupported at once.
//
// Behind a transaction pooler nothing is heard, and no error tells: a listener
// that must know sends itself a notification.
func (db *DB) Listen(ctx context.Context, channel string, ready func(), heard func(payload string)) error {
	if db.Dialect.Listen == nil {
		return fmt.Errorf("notifications of %s: %w", db.Dialect.Name, errors.ErrUnsupported)
	}
	c, err := db.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer engine.Discard(c) // it would go on listening in the pool
	err = c.Raw(func(driverConn any) error {
		return db.Dialect.Listen(ctx, sqlconn.Unwrap(driverConn), channel, ready, heard)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
