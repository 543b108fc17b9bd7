package lock

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A table read from its start. No other plan needs checking: a primary key is the only index.
var scans = regexp.MustCompile(`Seq Scan|SCAN \S*_lock(_fence)?\b|select_type=[^I]\S* table=\S*_lock(_fence)? type=(ALL|index)\b`)

// Every statement finds its row by the key, among 20 000 locks, with and without
// statistics.
func TestPlans(t *testing.T) {
	t.Parallel()
	dbtest.Anew(t, func(t *testing.T, db *dbtest.DB) {
		args := sqlrun.Args{
			"name": "n7", "slot": 0, "owner": "x", "fence": 1, "ttl": 1, "meta": "", "session": "", "me": "x", "inturn": 1, "min": 1, "by": "x",
			"why": "x", "seen": "x", "seen_fence": 1, "slots": []int64{1, 2}, "names": []string{"n7", "n8"}, "after": "n7", "limit": 5,
			"ago": 1, "patience": 1, "channel": "x", "payload": "x", "rows": []sqlrun.Args{{"name": "n7", "slot": 0, "state": "FREE", "fence": 0}},
		}
		conn := db.Conn(t)
		explain := func(what string) {
			for _, stmt := range sqlrun.Statements() {
				if !strings.HasPrefix(stmt.Name, "lock.") || stmt == create || stmt == createFence { // INSERTs, which look nowhere
					continue
				}
				for _, line := range db.Plan(t, conn, stmt, args) {
					if scans.MatchString(line.String()) {
						t.Errorf("%s, %s reads the whole table: %s", what, stmt.Name, line)
					}
				}
			}
		}
		for part := range 20 {
			var rows []sqlrun.Args
			for i := range 1000 {
				rows = append(rows, sqlrun.Args{"name": fmt.Sprintf("n%d", part*1000+i), "slot": 0, "state": "FREE", "fence": 1})
			}
			for _, stmt := range []*sqlrun.Stmt{create, createFence} {
				_, err := db.Exec(t.Context(), stmt, sqlrun.Args{"rows": rows})
				must(t, err)
			}
		}
		explain("without statistics")
		db.Analyze(t, "lock", "lock_fence")
		explain("with statistics")
	}, (*testing.T).Parallel)
}
