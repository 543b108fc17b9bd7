package sqlschema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/dbcron/dbcron/dialect"
)

// The pauses between attempts at a change that has waited for a lock in vain double from the first to the
// longest. Meanwhile everybody else uses the tables.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

type waitingKey struct{}

// OnWait returns a context in which [Migrate], [To], [Down] and [Prompt] call say whenever they have waited in vain for a
// lock on a table. The text says for what, who seems to hold it, and when they try again. say is called in their own
// goroutine.
func OnWait(ctx context.Context, say func(text string)) context.Context {
	return context.WithValue(ctx, waitingKey{}, say)
}

// patiently calls change, with a pool whose transactions give up soon if somebody has a lock on a table that
// they change, and calls it again until it gets the locks or ctx ends. The class: whatever waits for a lock that
// conflicts with everybody's stops everybody who comes later, so it waits for about a second at a time.
func patiently(ctx context.Context, db *dialect.DB, change func(pool *sql.DB) error) error {
	pool := db.Patient()
	defer pool.Close()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := change(pool)
		if locks := db.Dialect.TableLocks; locks == nil || !locks.TimedOut(err) {
			return err
		}
		if say, ok := ctx.Value(waitingKey{}).(func(string)); ok {
			say(waitingFor(ctx, db, err, pause))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// waitingFor describes a wait in vain.
func waitingFor(ctx context.Context, db *dialect.DB, err error, pause time.Duration) string {
	what := "a change of the tables"
	if part := (*goose.PartialError)(nil); errors.As(err, &part) {
		what = fmt.Sprintf("migration %d", part.Failed.Source.Version)
	}
	text := fmt.Sprintf("%s waits until nobody else uses a table that it changes, and is tried again in %v, so that others can go on", what, pause)
	holders, err := db.TableLockHolders(ctx)
	if err != nil {
		return fmt.Sprintf("%s (who uses it is not known: %v)", text, err)
	}
	if len(holders) == 0 {
		return text
	}
	return text + ": " + strings.Join(holders, "; ")
}
