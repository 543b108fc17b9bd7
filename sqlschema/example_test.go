package sqlschema_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/sqlschema"
)

// A program creates the tables when it starts. Without the rights to do that, it checks them.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := engines.Open(ctx, "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	fmt.Println(sqlschema.Check(ctx, db) != nil)
	if err := sqlschema.Migrate(ctx, db); err != nil {
		panic(err)
	}
	version, err := sqlschema.Version(ctx, db)
	fmt.Println(version == sqlschema.Latest(db.Dialect), err, sqlschema.Check(ctx, db))
	// Output:
	// true
	// true <nil> <nil>
}
