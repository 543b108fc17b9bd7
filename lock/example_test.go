package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/sqlschema"
)

// open makes a database with dbcron's tables. A program that has a *sql.DB or a
// pgxpool.Pool uses the Wrap or WrapDB of its engine: postgres.Wrap.
func open(ctx context.Context) (db *dialect.DB, done func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	db, err = engines.Open(ctx, "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := sqlschema.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

func ExampleLocker_Do() {
	ctx := context.Background()
	db, done := open(ctx)
	defer done()
	locker, err := lock.New(db, lock.Options{TTL: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	err = locker.Do(ctx, "report", func(ctx context.Context, lease *lock.Lease) error {
		fmt.Println("making the report, fence", lease.Fence())
		return nil
	})
	fmt.Println(err)
	// Output:
	// making the report, fence 1
	// <nil>
}

func ExampleLocker_TryAcquire() {
	ctx := context.Background()
	db, done := open(ctx)
	defer done()
	locker, err := lock.New(db, lock.Options{Owner: "web1"})
	if err != nil {
		panic(err)
	}
	lease, err := locker.TryAcquire(ctx, "report")
	if err != nil {
		panic(err)
	}
	_, err = locker.TryAcquire(ctx, "report")
	var held *lock.HeldError
	if errors.As(err, &held) {
		fmt.Println("somebody else has it:", held.By == lease.Owner())
	}
	fmt.Println(lease.Release(ctx))
	// Output:
	// somebody else has it: true
	// <nil>
}

func ExampleLease_Guard() {
	ctx := context.Background()
	db, done := open(ctx)
	defer done()
	locker, err := lock.New(db, lock.Options{})
	if err != nil {
		panic(err)
	}
	err = locker.Do(ctx, "balance", func(ctx context.Context, lease *lock.Lease) error {
		tx, err := db.Pool().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()                          //nolint:errcheck // after a commit it does nothing
		if err := lease.Guard(ctx, tx); err != nil { // before anything is read
			return err
		}
		// … read and write with tx …
		return tx.Commit()
	})
	fmt.Println(err)
	// Output:
	// <nil>
}

func ExampleLocker_Pool() {
	ctx := context.Background()
	db, done := open(ctx)
	defer done()
	locker, err := lock.New(db, lock.Options{})
	if err != nil {
		panic(err)
	}
	exports, err := locker.Pool("exports", 3) // three at a time, over all processes
	if err != nil {
		panic(err)
	}
	err = exports.Do(ctx, func(_ context.Context, lease *lock.Lease) error {
		fmt.Println("slot", lease.Slot())
		return nil
	})
	fmt.Println(err)
	// Output:
	// slot 1
	// <nil>
}
