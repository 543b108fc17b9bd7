package engines_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module      = "github.com/dbcron/dbcron/"
	pgx         = "github.com/jackc/pgx/v5"
	mysqlDriver = "github.com/go-sql-driver/mysql"
	sqliteInC   = "modernc.org/sqlite"
)

// A program links only the driver of its engine. A package that does not know the engine links none.
func TestLinks(t *testing.T) {
	for pkg, want := range map[string][]string{
		"dialect":          nil,
		"sqlschema":        nil,
		"lock":             nil,
		"queue":            nil,
		"scheduler":        nil,
		"httpapi":          nil,
		"dashboard":        nil,
		"dialect/postgres": {pgx},
		"dialect/mysql":    {mysqlDriver},
		"dialect/sqlite":   {sqliteInC},
		"dialect/engines":  {pgx, mysqlDriver, sqliteInC},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+pkg).Output()
		if err != nil {
			t.Fatalf("%s: %v", pkg, err)
		}
		deps := strings.Fields(string(out))
		for _, driver := range []string{pgx, mysqlDriver, sqliteInC} {
			if has := slices.Contains(deps, driver); has != slices.Contains(want, driver) {
				t.Errorf("%s links %s: %v", pkg, driver, has)
			}
		}
	}
}
