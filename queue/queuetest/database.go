package queuetest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/sqlschema"
)

// DB returns a new SQLite database for the test, with dbcron's tables, in a file that is
// removed at the end of the test. For another engine, use [sqlrun.Open] and
// [sqlschema.Migrate].
func DB(t testing.TB) *dialect.DB {
	t.Helper()
	db, err := engines.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "queue.db"), dialect.Options{})
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("queuetest: %v", err)
		}
	})
	if err := sqlschema.Migrate(t.Context(), db); err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	return db
}

// Client returns a client that logs to the test. Its queues have one block, which is faster to
// read.
func Client(t testing.TB, db *dialect.DB) *queue.Client {
	t.Helper()
	c := client(t, db)
	t.Cleanup(func() {
		if err := c.Flush(context.Background()); err != nil {
			t.Errorf("queuetest: %v", err)
		}
	})
	return c
}

func client(t testing.TB, db *dialect.DB) *queue.Client {
	t.Helper()
	c, err := queue.New(db, queue.Options{Blocks: 1, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	return c
}
