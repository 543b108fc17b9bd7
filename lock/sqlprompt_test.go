package lock

import (
	"database/sql"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
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

// shownCalls are the calls of functions or procedures that docs/lock-sql.md shows for an engine.
func shownCalls(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/lock-sql.md")
	must(t, err)
	_, part, _ := strings.Cut(string(page), "\n## Functions\n")
	part, _, _ = strings.Cut(part, "\n## ")
	blocks := strings.Split(part, "```sql\n")
	if len(blocks) != 3 {
		t.Fatalf("the page shows %d blocks of calls", len(blocks)-1)
	}
	text, _, _ := strings.Cut(blocks[1], "\n```")
	if db.Dialect.Name == mysql.Dialect.Name {
		text, _, _ = strings.Cut(blocks[2], "\n```")
	}
	return strings.Split(text, "\n")
}

// What the functions and procedures take keeps Go's leases out, and is kept out by them.
func TestSQLFunctions(t *testing.T) {
	having(t, dbtest.Routines, func(t *testing.T, db *dbtest.DB) {
		calls := shownCalls(t, db)
		l := locker(t, db, Options{TTL: time.Hour})
		conn, err := db.Pool().Conn(t.Context())
		must(t, err)
		defer func() { must(t, conn.Close()) }()
		call := func(text string, fence int64) string { // its answer
			t.Helper()
			var answer sql.NullString
			text = strings.NewReplacer(":fence", strconv.FormatInt(fence, 10), "@dbcron_fence, ", strconv.FormatInt(fence, 10)+", ").Replace(text)
			if db.Dialect.Name == mysql.Dialect.Name {
				_, err := conn.ExecContext(t.Context(), text)
				must(t, err)
				text = "SELECT " + text[strings.LastIndex(text, "@"):len(text)-2]
			}
			must(t, conn.QueryRowContext(t.Context(), text).Scan(&answer))
			return strings.NewReplacer("true", "1", "false", "0").Replace(answer.String)
		}
		take, renew, release := calls[0], calls[1], calls[2]
		expect := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
		}
		first := call(take, 0)
		fence := state(t, l, "report").Fence
		expect("the first", first, strconv.FormatInt(fence, 10))
		expect("the second", call(take, 0), "")
		_, err = l.TryAcquire(t.Context(), "report")
		var held *HeldError
		if !errors.As(err, &held) || held.By != "web1:4711:8f3a" {
			t.Fatalf("Go is not kept out: %v", err)
		}
		for _, text := range []string{renew, release} {
			expect("another fence", call(text, fence+1), "0")
			expect("another owner", call(strings.Replace(text, "8f3a", "8f3b", 1), fence), "0")
		}
		expect("renewing", call(renew, fence), "1")
		expect("giving back", call(release, fence), "1")
		expect("giving back again", call(release, fence), "0")
		expect("renewing what is free", call(renew, fence), "0")
		le := l.mustTake(t, "report")
		expect("Go has it", call(take, 0), "")
		must(t, le.Release(t.Context()))
		again, _ := strconv.ParseInt(call(take, 0), 10, 64)
		if again <= le.Fence() {
			t.Errorf("fence %d after %d", again, le.Fence())
		}
		db.Do(t, `UPDATE {prefix}lock SET expire_at = {now + -1} WHERE name = 'report'`, nil)
		expect("renewing what has ended", call(renew, again), "0")
		expect("giving back what has ended", call(release, again), "0")
		expect("taking over", call(take, 0), strconv.FormatInt(again+1, 10))
		if i := state(t, l, "report"); i.Takeovers != 1 {
			t.Errorf("got %+v", i)
		}
		for _, bad := range []string{
			strings.Replace(take, "'report'", "' report'", 1), strings.Replace(take, "'report'", "''", 1),
			strings.Replace(take, "'report'", "NULL", 1), strings.Replace(take, "web1:4711:8f3a", "", 1),
			strings.NewReplacer("30 seconds", "0 seconds", ", 30,", ", 0,").Replace(take),
		} {
			if _, err := conn.ExecContext(t.Context(), bad); err == nil {
				t.Errorf("%s: no error", bad)
			}
		}
		expect("a quoted name", call(strings.Replace(take, "'report'", "'it''s'", 1), 0), "1")
	})
}
