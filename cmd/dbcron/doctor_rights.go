package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/dialect"
)

// A use is a purpose for which a database user is created.
type use struct {
	name   string // for --role
	to     string // what its rights suffice for
	rights dialect.Rights
	lacks  dialect.Rights
}

// secretTables are tables that a read-only user should not read: see docs/grants.md.
var secretTables = []string{"endpoint", "token"}

// uses lists what a user's rights may suffice for, smaller ones first.
func uses(d *dialect.Dialect) []use {
	daemon, looking := daemonRole.rights(d), dialect.Rights{}
	for table := range daemon {
		if !slices.Contains(secretTables, table) {
			looking[table] = []string{"SELECT"}
		}
	}
	return []use{
		{name: "look", to: "look around", rights: looking},
		{name: "locks", to: "take locks", rights: lockRole.rights(d)},
		{name: "daemon", to: "run as a daemon", rights: daemon},
	}
}

// roleNames are what --role takes.
func roleNames() []string { return []string{"look", "locks", "daemon"} }

// examineRights reports what the user's rights suffice for, and which are missing for its purpose: as if given,
// or else the smallest use that includes all of its rights to write. A user with less than half of those was
// created for something else, such as enqueueing.
func examineRights(ctx context.Context, db *dialect.DB, as string) []checkRow {
	if db.Dialect.Holdings == nil {
		return nil
	}
	all := uses(db.Dialect)
	daemon := all[len(all)-1].rights
	holds, err := db.Dialect.Holdings(ctx, db, daemon)
	if err != nil {
		return []checkRow{{"rights", "failed", err.Error(), "compare this user's rights with docs/grants.md"}}
	}
	if holds == nil {
		return nil // no tables: reported elsewhere
	}
	for i := range all {
		all[i].lacks = both(all[i].rights, holds.Lacks)
	}
	writes := filtered(daemon, func(table, verb string) bool {
		return isWrite(table, verb) && !slices.Contains(holds.Lacks[table], verb)
	})
	made := all[slices.IndexFunc(all, func(u use) bool {
		if as != "" {
			return u.name == as
		}
		return len(without(writes, u.rights)) == 0
	})]
	rows := rightsRows(holds, all, made, as != "")
	if as != "" || holds.Schema != "" || 2*size(writes) >= size(filtered(made.rights, isWrite)) {
		return rows
	}
	rows[0].Status, rows[0].Advice = "ok", fmt.Sprintf("nothing, if it is for less, such as to enqueue; else: dbcron doctor --role %s", made.name)
	return rows[:1]
}

func isWrite(_, verb string) bool { return verb != "SELECT" }

// size returns the number of rights.
func size(r dialect.Rights) (n int) {
	for _, verbs := range r {
		n += len(verbs)
	}
	return n
}

// rightsRows says what the rights suffice for, and what is missing for the user's purpose, as given or as it
// seems.
func rightsRows(holds *dialect.Holdings, all []use, made use, asked bool) []checkRow {
	var enough, not []string
	for _, u := range all {
		if len(u.lacks) == 0 && holds.Schema == "" {
			enough = append(enough, u.to)
		} else {
			not = append(not, u.to)
		}
	}
	detail := holds.User + ":"
	if len(enough) > 0 {
		detail += " enough to " + strings.Join(enough, " and to ")
	}
	if len(not) > 0 {
		if len(enough) > 0 {
			detail += ";"
		}
		detail += " not enough to " + strings.Join(not, " or to ")
	}
	rows := []checkRow{{"rights", "ok", detail, ""}}
	lacking := func(what, grant string) {
		to := "to " + made.to
		if !asked {
			to += ", which it comes nearest to,"
		}
		rows = append(rows, checkRow{"right", rows[0].Status, to + " it lacks " + what, grant})
	}
	if len(made.lacks) > 0 || holds.Schema != "" {
		rows[0].Advice = "run these GRANTs as the owner of the tables: docs/grants.md"
		rows[0].Status = "failed"
		if made.to == all[0].to && !asked {
			rows[0].Status = "warning" // a part suffices for many read-only users
		}
	}
	if holds.Schema != "" {
		lacking("USAGE on the schema "+holds.Schema, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", holds.Schema, holds.User))
	}
	lines := grants(made.lacks, holds.Tables, holds.User)
	for i, table := range slices.Sorted(maps.Keys(made.lacks)) {
		lacking(strings.Join(made.lacks[table], ", ")+" on "+holds.Tables+table, lines[i])
	}
	return rows
}

// both returns the rights that are in a and in b; without returns those of a that are not in b.
func both(a, b dialect.Rights) dialect.Rights {
	return filtered(a, func(table, verb string) bool { return slices.Contains(b[table], verb) })
}

func without(a, b dialect.Rights) dialect.Rights {
	return filtered(a, func(table, verb string) bool { return !slices.Contains(b[table], verb) })
}

func filtered(a dialect.Rights, keep func(table, verb string) bool) dialect.Rights {
	kept := dialect.Rights{}
	for table, verbs := range a {
		for _, verb := range verbs {
			if keep(table, verb) {
				kept[table] = append(kept[table], verb)
			}
		}
	}
	return kept
}
