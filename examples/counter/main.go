// Counter adds to a number in a table, a given number of times. Start as many as
// you like, on as many hosts: they share one lock, and no addition is lost.
//
//	counter --url postgres://user:password@host/database --times 1000
//
// An addition reads the number and writes it back, in two statements. Without the
// lock, two concurrent additions could both read 7 and both write 8.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/sqlschema"
)

// A program's own statements can be written once for all engines, too.
var (
	table = dialect.SQL("counter.table", `
		CREATE TABLE IF NOT EXISTS example_counter (name VARCHAR(200) NOT NULL PRIMARY KEY, n BIGINT NOT NULL)`)
	row   = dialect.SQL("counter.row", `INSERT INTO example_counter (name, n) VALUES (:name, 0) {ignore_duplicate name}`)
	read  = dialect.SQL("counter.read", `SELECT n FROM example_counter WHERE name = :name`)
	write = dialect.SQL("counter.write", `UPDATE example_counter SET n = :n WHERE name = :name`)
)

func main() {
	url := flag.String("url", os.Getenv("DBCRON_DATABASE_URL"), "the database")
	times := flag.Int("times", 1000, "how many additions")
	name := flag.String("name", "counter", "of the lock, and of the row with the number")
	guarded := flag.Bool("guarded", false, "add in transactions that no late holder of the lock can commit")
	flag.Parse()
	if err := count(context.Background(), *url, *name, *times, *guarded); err != nil {
		fmt.Fprintln(os.Stderr, "counter:", err)
		os.Exit(1)
	}
}

func count(ctx context.Context, url, name string, times int, guarded bool) error {
	db, err := engines.Open(ctx, url, dialect.Options{}) // for a pool that you have already: sqlrun.Wrap
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sqlschema.Migrate(ctx, db); err != nil { // makes the locks' tables
		return err
	}
	locker, err := lock.New(db, lock.Options{})
	if err != nil {
		return err
	}
	// Under the lock, because concurrent CREATE TABLE statements can fail.
	err = locker.Do(ctx, name, func(ctx context.Context, _ *lock.Lease) error {
		_, err := db.Exec(ctx, table, nil)
		if err == nil {
			_, err = db.Exec(ctx, row, dialect.Args{"name": name})
		}
		return err
	})
	var n int64
	for i := 0; i < times && err == nil; i++ {
		err = locker.Do(ctx, name, func(ctx context.Context, lease *lock.Lease) (err error) {
			if guarded {
				n, err = addGuarded(ctx, db, lease, name)
			} else {
				n, err = add(ctx, &db.Session, name)
			}
			return err
		})
	}
	if err == nil {
		fmt.Println(n)
	}
	return err
}

// add is correct as long as one process at a time calls it. Its ctx ends before
// anybody else can have the lock. But a process that is stopped between the two
// statements for longer than its lease writes a stale number when it continues.
func add(ctx context.Context, s *dialect.Session, name string) (n int64, err error) {
	if err := s.Get(ctx, read, dialect.Args{"name": name}, &n); err != nil {
		return 0, err
	}
	_, err = s.Exec(ctx, write, dialect.Args{"name": name, "n": n + 1})
	return n + 1, err
}

// addGuarded is always correct: Guard refuses a holder once a later one has passed,
// and makes the next holder wait until this transaction has ended.
func addGuarded(ctx context.Context, db *dialect.DB, lease *lock.Lease, name string) (n int64, err error) {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if err = lease.Guard(ctx, tx); err == nil {
		n, err = add(ctx, db.On(tx), name)
	}
	if err != nil {
		return 0, err
	}
	return n, tx.Commit()
}
