package sqlrun

import (
	"maps"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/internal/pattern"
)

// Rights are the rights that statements need on tables: SELECT, INSERT, UPDATE and DELETE, by the
// table's name without the prefix.
type Rights map[string][]string

// Verbs lists the rights on a table, in the order in which Rights has them.
var Verbs = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}

var (
	quotedText = pattern.Lazy(`'[^']*'`)
	namedTable = pattern.Lazy(`\b(INSERT INTO|DELETE FROM|DELETE|UPDATE|FROM|JOIN|STRAIGHT_JOIN)\s+dbcron_([a-z_]+)`)
	locksRows  = pattern.Lazy(`\b(FOR UPDATE|FOR SHARE|LOCK IN SHARE MODE)\b`)
	orUpdates  = pattern.Lazy(`\b(ON DUPLICATE KEY|DO) UPDATE\b`)
	readsBack  = pattern.Lazy(`\b(ON CONFLICT \(|RETURNING\b)`)
)

// Add adds what s needs on an engine. The statement's text decides, because engines check rights
// before they look at any row.
func (r Rights) Add(s *Stmt, d *Dialect) {
	text := quotedText().ReplaceAllString(s.Text(d), "''")
	locks := d.LocksTakeUpdate && locksRows().MatchString(text)
	joined := strings.HasPrefix(text, "UPDATE (") || strings.HasPrefix(text, "UPDATE\n(")
	for _, found := range namedTable().FindAllStringSubmatch(text, -1) {
		table := found[2]
		switch found[1] {
		case "INSERT INTO":
			r.Hold(table, "INSERT")
			if orUpdates().MatchString(text) {
				r.Hold(table, "SELECT", "UPDATE")
			}
			if readsBack().MatchString(text) {
				r.Hold(table, "SELECT")
			}
		case "DELETE FROM", "DELETE": // the latter of rows that are joined
			r.Hold(table, "SELECT", "DELETE") // SELECT because of its WHERE
		case "UPDATE":
			r.Hold(table, "SELECT", "UPDATE")
		case "STRAIGHT_JOIN":
			r.Hold(table, "SELECT")
			if joined || locks { // the UPDATE joins the rows picked
				r.Hold(table, "UPDATE")
			}
		default:
			r.Hold(table, "SELECT")
			if locks {
				r.Hold(table, "UPDATE")
			}
		}
	}
}

// Tables lists the tables that the program's statements name, without the prefix.
func Tables(d *Dialect) []string {
	all := Rights{}
	for _, s := range Statements() {
		all.Add(s, d)
	}
	return slices.Sorted(maps.Keys(all))
}

// Hold adds rights on a table.
func (r Rights) Hold(table string, verbs ...string) {
	has := append(slices.Clone(r[table]), verbs...)
	slices.SortFunc(has, func(a, b string) int { return slices.Index(Verbs, a) - slices.Index(Verbs, b) })
	r[table] = slices.Compact(has)
}

// Holdings describes what a connection's user may do with dbcron's tables.
type Holdings struct {
	User   string // as a GRANT names it
	Tables string // prefix of table names in a GRANT: schema or database, and prefix
	Schema string // schema that the user cannot access, for lack of USAGE; "": none
	Lacks  Rights // the requested rights that the user does not hold
}
