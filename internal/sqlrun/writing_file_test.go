package sqlrun_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// DBs of the same file share a permit, whatever they call it, and DBs of two files do not.
func TestWritersOfAFile(t *testing.T) {
	dbtest.One(t, sqlite.Dialect, func(t *testing.T, db *dbtest.DB) {
		path := strings.TrimPrefix(db.URL, "sqlite:")
		link := filepath.Join(t.TempDir(), "link.db")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		wrapped, err := sqlite.Wrap(t.Context(), db.Pool(), dialect.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for name, other := range map[string]*dialect.DB{
			"opened again":   db.Another(t, dialect.Options{}).DB,
			"a link":         dbtest.Open(t, "sqlite:"+link, dialect.Options{}).DB,
			"the pool":       wrapped,
			"borrowed conns": db.Over(db.Pool()),
		} {
			if !sqlrun.SharePermit(db.DB, other) {
				t.Errorf("%s: they do not share a permit", name)
			}
		}
		if sqlrun.SharePermit(db.DB, dbtest.Fresh(t, "sqlite").DB) {
			t.Error("DBs of two files share a permit")
		}
	})
}
