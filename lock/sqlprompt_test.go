package lock

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// shownSQL are the statements that docs/lock-sql.md shows for an engine: they make the row, take
// the lock, renew it, and give it back.
func shownSQL(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/lock-sql.md")
	must(t, err)
	title := map[string]string{"postgres": "PostgreSQL", "mysql": "MySQL and MariaDB", "sqlite": "SQLite"}[db.Dialect.Name]
	_, part, _ := strings.Cut(string(page), "\n## "+title+"\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var all []string
	for _, block := range strings.Split(part, "```sql\n")[1:] {
		text, _, _ := strings.Cut(block, ";\n```")
		all = append(all, text)
	}
	if len(all) != 4 {
		t.Fatalf("the page shows %d statements", len(all))
	}
	return all
}

// What docs/lock-sql.md shows keeps Go's leases out, and is kept out by them.
func TestSQLPrompt(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		sql := shownSQL(t, db)
		l := locker(t, db, Options{TTL: time.Hour})
		run := func(text string, fence int64) int64 {
			t.Helper()
			result, err := db.Pool().ExecContext(t.Context(), strings.ReplaceAll(text, ":fence", strconv.FormatInt(fence, 10)))
			must(t, err)
			n, err := result.RowsAffected()
			must(t, err)
			return n
		}
		create, take, renew, release := sql[0], sql[1], sql[2], sql[3]
		run(create, 0)
		run(create, 0)
		if run(take, 0) != 1 || run(take, 0) != 0 {
			t.Fatal("the lock is taken once")
		}
		_, err := l.TryAcquire(t.Context(), "report")
		var held *HeldError
		if !errors.As(err, &held) || held.By != "web1:4711:8f3a" {
			t.Fatalf("Go is not kept out: %v", err)
		}
		fence := state(t, l, "report").Fence
		if run(renew, fence) != 1 || run(renew, fence+1) != 0 || run(release, fence-1) != 0 || state(t, l, "report").Extends != 1 {
			t.Errorf("renewing: %+v", state(t, l, "report"))
		}
		if run(release, fence) != 1 || run(release, fence) != 0 || run(renew, fence) != 0 {
			t.Error("it is given back once")
		}
		le := l.mustTake(t, "report")
		if le.Fence() <= fence || run(take, 0) != 0 {
			t.Errorf("Go does not keep the statements out, or has fence %d after %d", le.Fence(), fence)
		}
		must(t, le.Release(t.Context()))
		if run(take, 0) != 1 {
			t.Error("what Go has given back is not taken")
		}
		db.Do(t, `UPDATE {prefix}lock SET expire_at = {now + -1} WHERE name = 'report'`, nil)
		if fence = state(t, l, "report").Fence; run(renew, fence) != 0 || run(release, fence) != 0 || run(take, 0) != 1 {
			t.Error("a lease that has ended is not anybody's")
		}
	})
}
