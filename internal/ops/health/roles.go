package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Role is a kind of database user from docs/grants.md. Its rights follow from the statements that its programs
// send.
type Role struct {
	User  string                      // its name in the docs
	Sends func(statement string) bool // reports whether its programs send a statement
}

// The roles of docs/grants.md.
var (
	DaemonRole = Role{"dbcron_run", func(statement string) bool {
		// The owner migrates; the API neither creates nor deletes tokens.
		return (!strings.HasPrefix(statement, "sqlschema.") || looksAtTables(statement)) &&
			statement != "httpapi.create-token" && statement != "httpapi.remove-tokens"
	}}
	LockRole = Role{"dbcron_locks", func(statement string) bool {
		return strings.HasPrefix(statement, "lock.") || looksAtTables(statement)
	}}
)

// looksAtTables reports whether a statement belongs to the check of the tables that every program makes.
func looksAtTables(statement string) bool {
	return statement == "sqlschema.current" || statement == "sqlschema.checksums"
}

// Rights returns what the role needs on an engine.
func (r Role) Rights(d *sqlrun.Dialect) sqlrun.Rights {
	rights := sqlrun.Rights{}
	for _, s := range sqlrun.Statements() {
		if r.Sends(s.Name) {
			rights.Add(s, d)
		}
	}
	return rights
}

// Grants returns the statements that grant a user rights on tables with the prefix, ordered by table name.
func Grants(rights sqlrun.Rights, prefix, user string) (all []string) {
	for _, table := range slices.Sorted(maps.Keys(rights)) {
		all = append(all, fmt.Sprintf("GRANT %s ON %s%s TO %s;", strings.Join(rights[table], ", "), prefix, table, user))
	}
	return all
}
