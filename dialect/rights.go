package dialect

import (
	"regexp"
	"slices"
	"strings"
)

// Rights are what statements need on tables: SELECT, INSERT, UPDATE and DELETE, by the
// table's name without the prefix.
type Rights map[string][]string

// Verbs are the rights on a table, in the order in which Rights has them.
var Verbs = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}

var (
	quotedText = regexp.MustCompile(`'[^']*'`)
	namedTable = regexp.MustCompile(`\b(INSERT INTO|DELETE FROM|UPDATE|FROM|JOIN|STRAIGHT_JOIN)\s+dbcron_([a-z_]+)`)
	locksRows  = regexp.MustCompile(`\b(FOR UPDATE|FOR SHARE|LOCK IN SHARE MODE)\b`)
	orUpdates  = regexp.MustCompile(`\b(ON DUPLICATE KEY|DO) UPDATE\b`)
	readsBack  = regexp.MustCompile(`\b(ON CONFLICT \(|RETURNING\b)`)
)

// Add adds what s needs on an engine. It reads the text: an engine checks a statement's
// rights before it looks at any row, so the text decides.
func (r Rights) Add(s *Stmt, d *Dialect) {
	text := quotedText.ReplaceAllString(s.Text(d), "''")
	locks := d.LocksTakeUpdate && locksRows.MatchString(text)
	joined := strings.HasPrefix(text, "UPDATE (") || strings.HasPrefix(text, "UPDATE\n(")
	for _, found := range namedTable.FindAllStringSubmatch(text, -1) {
		table := found[2]
		switch found[1] {
		case "INSERT INTO":
			r.add(table, "INSERT")
			if orUpdates.MatchString(text) {
				r.add(table, "SELECT", "UPDATE")
			}
			if readsBack.MatchString(text) {
				r.add(table, "SELECT")
			}
		case "DELETE FROM":
			r.add(table, "SELECT", "DELETE") // SELECT for its WHERE
		case "UPDATE":
			r.add(table, "SELECT", "UPDATE")
		case "STRAIGHT_JOIN":
			r.add(table, "SELECT")
			if joined || locks { // what is updated is joined to what was picked
				r.add(table, "UPDATE")
			}
		default:
			r.add(table, "SELECT")
			if locks {
				r.add(table, "UPDATE")
			}
		}
	}
}

func (r Rights) add(table string, verbs ...string) {
	has := append(slices.Clone(r[table]), verbs...)
	slices.SortFunc(has, func(a, b string) int { return slices.Index(Verbs, a) - slices.Index(Verbs, b) })
	r[table] = slices.Compact(has)
}
