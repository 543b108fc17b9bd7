package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/sqlite"
)

// Open creates the file if it does not exist.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(context.Background(), "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	fmt.Println(db.Dialect.Title, db.Prefix())
	// Output: SQLite dbcron_
}

// A program keeps using its own pool beside dbcron. dbcron requires that its connections wait for
// the writer, that transactions begin as writers, and that the file is in WAL mode.
func ExampleWrap() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+
		"?_txlock=immediate&_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	db, err := sqlite.Wrap(context.Background(), pool, dialect.Options{Prefix: "cron_"})
	if err != nil {
		panic(err)
	}
	fmt.Println(db.Prefix(), db.Pool() == pool)
	// Output: cron_ true
}
