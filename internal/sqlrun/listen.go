package sqlrun

import (
	"context"
	"errors"
	"fmt"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlconn"
)

// Listen calls heard for each notification on channel, until ctx or the connection ends. It calls
// ready once, when it has begun to receive. It uses one connection of the pool meanwhile. On engines
// without notifications it returns errors.ErrUnsupported at once.
//
// Behind a transaction pooler no notification arrives, and there is no error. A listener that must
// know can send itself a notification.
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
