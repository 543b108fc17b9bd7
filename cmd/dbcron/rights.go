package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/dialect"
)

// A role is a kind of database user from docs/grants.md. Its rights follow from the statements that its programs
// send.
type role struct {
	user  string // in the docs
	sends func(statement string) bool
}

var (
	daemonRole = role{"dbcron_run", func(statement string) bool {
		// The owner migrates; the API neither creates nor deletes tokens.
		return (!strings.HasPrefix(statement, "sqlschema.") || statement == versionStatement) &&
			statement != "httpapi.create-token" && statement != "httpapi.remove-tokens"
	}}
	lockRole = role{"dbcron_locks", func(statement string) bool {
		return strings.HasPrefix(statement, "lock.") || statement == versionStatement
	}}
)

// versionStatement checks the version of the tables, and every program sends it.
const versionStatement = "sqlschema.current"

func (r role) rights(d *dialect.Dialect) dialect.Rights {
	rights := dialect.Rights{}
	for _, s := range dialect.Statements() {
		if r.sends(s.Name) {
			rights.Add(s, d)
		}
	}
	return rights
}

// grants returns the statements that grant a user rights on tables with the prefix, ordered by table name.
func grants(rights dialect.Rights, prefix, user string) (all []string) {
	for _, table := range slices.Sorted(maps.Keys(rights)) {
		all = append(all, fmt.Sprintf("GRANT %s ON %s%s TO %s;", strings.Join(rights[table], ", "), prefix, table, user))
	}
	return all
}
