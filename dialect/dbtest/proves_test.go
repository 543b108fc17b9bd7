package dbtest

import (
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/dialect/sqlite"
)

// Each test runs somewhere, whichever engines are left out, and what is about locks runs where rows
// are locked, if such an engine is there.
func TestEnginesByProof(t *testing.T) {
	all := map[string]*engine{
		"postgres": {name: "postgres", dialect: postgres.Dialect},
		"mariadb":  {name: "mariadb", dialect: mysql.Dialect},
		"mysql":    {name: "mysql", dialect: mysql.Dialect},
		"sqlite":   {name: "sqlite", dialect: sqlite.Dialect},
	}
	for _, c := range []struct{ tested, memory, locks, dialects, processes string }{
		{"postgres mariadb mysql sqlite", "sqlite", "postgres sqlite", "postgres mariadb sqlite", "postgres"},
		{"mariadb mysql sqlite", "sqlite", "mariadb sqlite", "mariadb sqlite", "mariadb"},
		{"postgres mysql", "postgres", "postgres", "postgres mysql", "postgres"},
		{"mysql", "mysql", "mysql", "mysql", "mysql"},
		{"sqlite", "sqlite", "sqlite", "sqlite", "sqlite"},
	} {
		var tested []*engine
		for name := range strings.FieldsSeq(c.tested) {
			tested = append(tested, all[name])
		}
		for p, want := range map[Proves]string{Memory: c.memory, Locks: c.locks, Dialects: c.dialects, Processes: c.processes} {
			for long, want := range map[string]string{"": want, "true": c.tested} {
				t.Setenv(longVariable, long)
				var names []string
				for _, e := range p.engines(tested) {
					names = append(names, e.name)
				}
				if got := strings.Join(names, " "); got != want {
					t.Errorf("of %s, with long proofs %q: got %s, want %s", c.tested, long, got, want)
				}
			}
		}
	}
}
