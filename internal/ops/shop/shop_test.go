package shop

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/sqlschema"
)

// A lock that one of those who take turns at it loses is taken again.
func TestRivalsGoOnAfterALostLock(t *testing.T) {
	t.Parallel()
	db := dbtest.Fresh(t, "sqlite")
	dbtest.Must(t, sqlschema.Migrate(t.Context(), db.DB))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &Shop{db: db.DB, log: slog.New(slog.DiscardHandler)}
	done := make(chan error, 1)
	go func() { done <- s.rivals(ctx) }()
	locker, err := lock.New(db.DB, lock.Options{})
	dbtest.Must(t, err)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for freed := map[int64]bool{}; len(freed) < 5; { // by fence
		select {
		case <-tick.C:
			if was, err := locker.ForceRelease(ctx, "cache-warmup", 0, "test", "the host is busy"); err == nil {
				freed[was.Fence] = true
			}
		case err := <-done:
			t.Fatal("they ended:", err)
		case <-time.After(time.Minute):
			t.Fatalf("freed %d times", len(freed))
		}
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
