package health

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Use is a purpose for which a database user is created.
type Use struct {
	Name   string // one of Purposes
	To     string // what its rights suffice for
	Rights sqlrun.Rights
	lacks  sqlrun.Rights
}

// secretTables are tables that a read-only user should not read: see docs/grants.md.
var secretTables = []string{"endpoint", "token"}

// Uses lists what a user's rights may suffice for, smaller ones first.
func Uses(d *sqlrun.Dialect) []Use {
	daemon, looking := DaemonRole.Rights(d), sqlrun.Rights{}
	for table := range daemon {
		if !slices.Contains(secretTables, table) {
			looking[table] = []string{"SELECT"}
		}
	}
	return []Use{
		{Name: "look", To: "look around", Rights: looking},
		{Name: "locks", To: "take locks", Rights: LockRole.Rights(d)},
		{Name: "daemon", To: "run as a daemon", Rights: daemon},
	}
}

// Purposes are the names of Uses.
func Purposes() []string { return []string{"look", "locks", "daemon"} }

// ofRights reports what the user's rights suffice for, and which are missing for its purpose: as if given,
// or else the smallest use that includes all of its rights to write. A user with less than half of those was
// created for something else, such as enqueueing.
func ofRights(ctx context.Context, db *dialect.DB, as string) []Check {
	if db.Dialect.Holdings == nil {
		return nil
	}
	all := Uses(db.Dialect)
	daemon := all[len(all)-1].Rights
	holds, err := db.Dialect.Holdings(ctx, db, daemon)
	if err != nil {
		return []Check{broken("rights", Failed, err, "compare this user's rights with dbcron help grants")}
	}
	if holds == nil {
		return nil // no tables: reported elsewhere
	}
	for i := range all {
		all[i].lacks = both(all[i].Rights, holds.Lacks)
	}
	writes := filtered(daemon, func(table, verb string) bool {
		return isWrite(table, verb) && !slices.Contains(holds.Lacks[table], verb)
	})
	made := all[slices.IndexFunc(all, func(u Use) bool {
		if as != "" {
			return u.Name == as
		}
		return len(without(writes, u.Rights)) == 0
	})]
	rows := rightsRows(holds, all, made, as != "")
	if as != "" || holds.Schema != "" || 2*size(writes) >= size(filtered(made.Rights, isWrite)) {
		return rows
	}
	sum := rows[slices.IndexFunc(rows, func(c Check) bool { return c.Name == "rights" })]
	sum.Status, sum.Advice = OK, "nothing, if it is for less, such as to enqueue; else: dbcron doctor --role "+made.Name
	return []Check{sum}
}

func isWrite(_, verb string) bool { return verb != "SELECT" }

// size returns the number of rights.
func size(r sqlrun.Rights) (n int) {
	for _, verbs := range r {
		n += len(verbs)
	}
	return n
}

// rightsRows says what the rights suffice for, and what is missing for the user's purpose, as given or as it
// seems.
func rightsRows(holds *sqlrun.Holdings, all []Use, made Use, asked bool) []Check {
	var enough, not []string
	for _, u := range all {
		if len(u.lacks) == 0 && holds.Schema == "" {
			enough = append(enough, u.To)
		} else {
			not = append(not, u.To)
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
	rows := []Check{{Name: "rights", Status: OK, Detail: detail}}
	lacking := func(what, grant string) {
		to := "to " + made.To
		if !asked {
			to += ", which it comes nearest to,"
		}
		rows = append(rows, Check{Name: "right", Status: rows[0].Status, Detail: to + " it lacks " + what, Advice: grant})
	}
	if len(made.lacks) > 0 || holds.Schema != "" {
		rows[0].Advice = "run these GRANTs as the owner of the tables: dbcron help grants"
		rows[0].Status = Failed
		if made.To == all[0].To && !asked {
			rows[0].Status = Warning // a part suffices for many read-only users
		}
	}
	if holds.Schema != "" {
		lacking("USAGE on the schema "+holds.Schema, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", holds.Schema, holds.User))
	}
	lines := Grants(made.lacks, holds.Tables, holds.User)
	for i, table := range slices.Sorted(maps.Keys(made.lacks)) {
		lacking(strings.Join(made.lacks[table], ", ")+" on "+holds.Tables+table, lines[i])
	}
	if len(rows) == 2 { // the one says all
		slices.Reverse(rows)
	}
	return rows
}

// both returns the rights that are in a and in b; without returns those of a that are not in b.
func both(a, b sqlrun.Rights) sqlrun.Rights {
	return filtered(a, func(table, verb string) bool { return slices.Contains(b[table], verb) })
}

func without(a, b sqlrun.Rights) sqlrun.Rights {
	return filtered(a, func(table, verb string) bool { return !slices.Contains(b[table], verb) })
}

func filtered(a sqlrun.Rights, keep func(table, verb string) bool) sqlrun.Rights {
	kept := sqlrun.Rights{}
	for table, verbs := range a {
		for _, verb := range verbs {
			if keep(table, verb) {
				kept[table] = append(kept[table], verb)
			}
		}
	}
	return kept
}
