package dbtest

import (
	"embed"
	"fmt"
	"io/fs"
	"testing/fstest"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/sqlschema"
)

//go:embed next
var next embed.FS

// NextVersion returns db as the next version of the program would use it, which has one migration more: a table, and
// columns of the tables of queues and schedules, all named made_up. To upgrade, migrate with it. What goes on using db
// is the program of the version before.
func NextVersion(db *dialect.DB) *dialect.DB { return db.WithMigrations(NextMigrations()) }

// NextMigrations returns the migration of NextVersion for all engines, as files DIALECT/NUMBER_NAME.sql.
func NextMigrations() fs.FS {
	files := fstest.MapFS{}
	for _, d := range engines.All {
		text, err := next.ReadFile("next/" + d.Name + ".sql")
		if err != nil {
			panic(err) // it is embedded
		}
		files[fmt.Sprintf("%s/%05d_made_up.sql", d.Name, sqlschema.Latest(d)+1)] = &fstest.MapFile{Data: text}
	}
	return files
}
