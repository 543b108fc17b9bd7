package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/dialect"
)

// A role is a kind of database user of docs/grants.md: the statements that its programs
// send decide its rights.
type role struct {
	user  string // in the docs
	sends func(statement string) bool
}

var (
	daemonRole = role{"dbcron_run", func(statement string) bool {
		// Migrating is the owner's, and the API neither makes nor removes tokens.
		return (!strings.HasPrefix(statement, "sqlschema.") || statement == versionStatement) &&
			statement != "httpapi.create-token" && statement != "httpapi.remove-tokens"
	}}
	lockRole = role{"dbcron_locks", func(statement string) bool {
		return strings.HasPrefix(statement, "lock.") || statement == versionStatement
	}}
)

// versionStatement is what each program sends that looks whether the tables are up to date.
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

// grants are the statements that give a user rights on tables, whose names begin with the
// prefix, in the order of the tables' names.
func grants(rights dialect.Rights, prefix, user string) (all []string) {
	for _, table := range slices.Sorted(maps.Keys(rights)) {
		all = append(all, fmt.Sprintf("GRANT %s ON %s%s TO %s;", strings.Join(rights[table], ", "), prefix, table, user))
	}
	return all
}
