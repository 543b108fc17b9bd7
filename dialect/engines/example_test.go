package engines_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
)

// A program whose URL decides the engine links all drivers.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := engines.Open(context.Background(), "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{Prefix: "cron_"})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	fmt.Println(db.Dialect.Name, db.Prefix())
	// Output: sqlite cron_
}
