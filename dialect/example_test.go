package dialect_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/sqlite"
)

// A program makes its statements once.
var (
	makeVisits  = dialect.SQL("visits.make", `CREATE TABLE {prefix}visit (id INTEGER PRIMARY KEY, name TEXT, until TEXT)`)
	addVisits   = dialect.SQL("visits.add", `INSERT INTO {prefix}visit (name, until) VALUES {values rows: (:name, {now + :stay})}`)
	countVisits = dialect.SQL("visits.count", `SELECT COUNT(*) FROM {prefix}visit WHERE until > {now} AND name IN (:names)`)
)

// Time is the database's: {now + :stay} is a moment by its clock. Arguments are in microseconds.
func ExampleDB_Tx() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	if _, err := db.Exec(ctx, makeVisits, nil); err != nil {
		panic(err)
	}
	var here int
	err := db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		if _, err := tx.Exec(ctx, addVisits, dialect.Args{"rows": []dialect.Args{
			{"name": "Ada", "stay": time.Hour.Microseconds()},
			{"name": "Grace", "stay": time.Hour.Microseconds()},
			{"name": "Alan", "stay": int64(0)},
		}}); err != nil {
			return err // rolls back
		}
		return tx.Get(ctx, countVisits, dialect.Args{"names": []string{"Ada", "Alan"}}, &here)
	})
	fmt.Println(here, err)
	// Output: 1 <nil>
}

// A Dialect interprets a driver's error.
func ExampleDialect_errors() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	var n int
	err := db.Get(ctx, countVisits, dialect.Args{"names": []string{"Ada"}}, &n)
	fmt.Println("missing:", db.Dialect.Missing(err))
	fmt.Println("try again later:", db.Dialect.Unreachable(err))
	// Output:
	// missing: true
	// try again later: false
}

// Redact removes the password from a URL for logs.
func ExampleRedact() {
	fmt.Println(dialect.Redact("postgres://app:secret@db.example.com:5432/app"))
	// Output: postgres://app:…@db.example.com:5432/app
}

func openExample(ctx context.Context) (*dialect.DB, func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	db, err := sqlite.Open(ctx, "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{})
	if err != nil {
		panic(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}
