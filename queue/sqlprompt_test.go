package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A prompt is a session at the SQL prompt.
type prompt struct {
	db   *dbtest.DB
	conn *sql.Conn
	on   *sqlrun.Session
}

// atPrompt runs a test for engines with routines, each with a session of its own.
func atPrompt(t *testing.T, f func(t *testing.T, db *dbtest.DB, p *prompt)) {
	t.Helper()
	atPromptHaving(t, dbtest.Routines, f)
}

func atPromptHaving(t *testing.T, has dbtest.With, f func(t *testing.T, db *dbtest.DB, p *prompt)) {
	t.Helper()
	having(t, has, func(t *testing.T, db *dbtest.DB) {
		f(t, db, newPrompt(t, db))
	})
}

func newPrompt(t *testing.T, db *dbtest.DB) *prompt {
	t.Helper()
	conn := db.Conn(t)
	p := &prompt{db, conn, db.On(conn)}
	if db.Engine == "mariadb" { // who sits at it may think
		p.do(t, `SET SESSION idle_transaction_timeout = 0`, nil)
	}
	return p
}

func (p *prompt) do(t *testing.T, text string, args sqlrun.Args) {
	t.Helper()
	_, err := p.on.Exec(t.Context(), sqlrun.Unlisted(text), args)
	must(t, err)
}

// A call has the arguments of dbcron_enqueue; nil is NULL, and runAt is µs from now.
type call struct{ queue, kind, payload, key, runAt any }

// enqueue calls dbcron_enqueue.
func (p *prompt) enqueue(ctx context.Context, c call) (id int64, err error) {
	at := "NULL"
	if literal, is := c.runAt.(string); is {
		at = "TIMESTAMP'" + literal + "'"
	} else if c.runAt != nil {
		at = "{now + :at}"
	}
	args := sqlrun.Args{"queue": c.queue, "kind": c.kind, "payload": c.payload, "key": c.key, "at": c.runAt}
	if p.db.Dialect.Name == postgres.Dialect.Name {
		text := "SELECT {prefix}enqueue(CAST(:queue AS TEXT), CAST(:kind AS TEXT), CAST(:payload AS JSON), CAST(:key AS TEXT), " + at + ")"
		return id, p.on.Get(ctx, sqlrun.Unlisted(text), args, &id)
	}
	if _, err := p.on.Exec(ctx, sqlrun.Unlisted("CALL {prefix}enqueue(:queue, :kind, :payload, :key, "+at+", @id)"), args); err != nil {
		return 0, err
	}
	return id, p.on.Get(ctx, sqlrun.Unlisted("SELECT @id"), nil, &id)
}

func (p *prompt) must(t *testing.T, c call) int64 {
	t.Helper()
	id, err := p.enqueue(t.Context(), c)
	must(t, err)
	return id
}

func TestPromptDividesAsGo(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		c := client(t, db, Options{Blocks: 997})
		_, err := c.queue(t.Context(), "q")
		must(t, err)
		seed := rand.Uint64()
		t.Log("seed", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		last := int64(0)
		p.do(t, "BEGIN", nil)
		for i := range 1500 {
			key := any(randomKey(r))
			if i%4 == 0 {
				key = nil
			}
			id := p.must(t, call{queue: "q", kind: "k", key: key})
			if id>>store.IdBits <= last>>store.IdBits {
				t.Errorf("id %d after %d", id, last)
			}
			last = id
		}
		p.do(t, "COMMIT", nil)
		q, err := c.read(t.Context(), "q")
		must(t, err)
		jobs := map[int64]Job{}
		rows := db.List(t, `SELECT divided, id, COALESCE(job_key, '') FROM {prefix}job`, nil)
		for _, row := range rows {
			parts := strings.SplitN(row, " ", 3)
			var divided int
			var id int64
			_, err := fmt.Sscan(parts[0]+" "+parts[1], &divided, &id)
			must(t, err)
			if want := q.Block(parts[2], id); divided != want {
				t.Errorf("job %d with key %q is in block %d, not %d", id, parts[2], divided, want)
			}
			jobs[id] = Job{}
		}
		if len(jobs) != 1500 || !q.Ordered {
			t.Errorf("%d jobs, ordered: %v", len(jobs), q.Ordered)
		}
	})
}

// randomKey returns a valid key with characters that some engine quotes or escapes, or that are
// long.
func randomKey(r *rand.Rand) string {
	const letters = "aZ09 '\"\\%_$`{}:?éßñÄ�日本語👍🏽\U0010ffff"
	all := []rune(letters)
	key := make([]rune, 1+r.IntN(12))
	if r.IntN(20) == 0 {
		key = make([]rune, 200)
	}
	for i := range key {
		key[i] = all[r.IntN(len(all))]
	}
	key[0], key[len(key)-1] = 'k', '.'
	return string(key)
}

func TestPromptBlocksOfGenerations(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		c := client(t, db, Options{Blocks: 3})
		_, err := c.queue(t.Context(), "q")
		must(t, err)
		must(t, adminOf(c).Resize(t.Context(), "q", 5))
		check := func(what string, first, blocks int) {
			t.Helper()
			for i := range 30 {
				key := fmt.Sprint("k", i)
				id := p.must(t, call{queue: "q", kind: "k", key: key})
				var divided int
				db.Scan(t, `SELECT divided FROM {prefix}job WHERE id = :id`, sqlrun.Args{"id": id}, &divided)
				if want := first + store.Divided(key, id, blocks); divided != want {
					t.Errorf("%s: key %s is in block %d, not %d", what, key, divided, want)
				}
			}
		}
		db.Do(t, `UPDATE {prefix}queue_block SET insert_time = {now + :us} WHERE generation = 2`, sqlrun.Args{"us": time.Hour.Microseconds()})
		check("before the new blocks begin", 0, 3)
		db.Do(t, `UPDATE {prefix}queue_block SET insert_time = {now + :us}`, sqlrun.Args{"us": -store.ResizeAfter.Microseconds() - 1})
		check("after that", 3, 5)
		db.Do(t, `UPDATE {prefix}queue_block SET insert_time = {now + :us}`, sqlrun.Args{"us": time.Hour.Microseconds()})
		check("none has begun", 0, 3)
	})
}

func TestPromptMakesTheQueueOnce(t *testing.T) {
	dbtest.SkipBare(t, "its transactions would have to be run again")
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		var wg sync.WaitGroup
		for i := range 8 {
			p := newPrompt(t, db)
			if hasSnapshotIsolation(t, db) {
				p.do(t, "SET SESSION innodb_snapshot_isolation = OFF", nil)
			}
			wg.Go(func() {
				for n := range 5 {
					text := "START TRANSACTION"
					if (i+n)%2 == 0 && !db.Dialect.DDLInTx { // where a snapshot is no reason to fail
						p.do(t, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", nil)
					}
					p.do(t, text, nil)
					p.do(t, `UPDATE {prefix}node SET state = 'live' WHERE 1 = 0`, nil)
					if _, err := p.enqueue(t.Context(), call{queue: fmt.Sprint("q", n), kind: "k", key: "x"}); err != nil {
						t.Error(err)
					}
					p.do(t, "COMMIT", nil)
				}
			})
		}
		wg.Wait()
		got := db.List(t, `SELECT q.name, q.ordered, COUNT(*), MAX(b.divided), (SELECT COUNT(*) FROM {prefix}job AS j WHERE j.queue_id = q.queue_id)
			FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id GROUP BY q.queue_id, q.name, q.ordered ORDER BY q.name`, nil)
		if want := []string{"q0 yes 16 15 8", "q1 yes 16 15 8", "q2 yes 16 15 8", "q3 yes 16 15 8", "q4 yes 16 15 8"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		db.Do(t, `INSERT INTO {prefix}queue (name) VALUES ('by hand')`, nil)
		p.must(t, call{queue: "by hand", kind: "k"})
	})
}

// hasSnapshotIsolation tells whether the server has the setting by which a transaction with
// a snapshot fails when it meets what is newer, and is run again. MariaDB has it on by default
// from 11.6.2 on. There are tests of what happens without it.
func hasSnapshotIsolation(t *testing.T, db *dbtest.DB) bool {
	t.Helper()
	return db.Dialect.Name == mysql.Dialect.Name && len(db.List(t, `SHOW VARIABLES LIKE 'innodb_snapshot_isolation'`, nil)) > 0
}

// A transaction that began before another made the queue finds it, where it does not fail and is run again.
func TestPromptLooksPastASnapshot(t *testing.T) {
	has := func(d *sqlrun.Dialect) bool { return dbtest.Routines(d) && !d.DDLInTx }
	atPromptHaving(t, has, func(t *testing.T, db *dbtest.DB, p *prompt) {
		if hasSnapshotIsolation(t, db) {
			p.do(t, "SET SESSION innodb_snapshot_isolation = OFF", nil)
		}
		p.do(t, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", nil)
		p.do(t, "START TRANSACTION WITH CONSISTENT SNAPSHOT", nil)
		c := client(t, db, Options{Blocks: 5})
		enqueue(t, c, Job{Queue: "q", Kind: "k"})
		id := p.must(t, call{queue: "q", kind: "k", key: "x"})
		p.do(t, "COMMIT", nil)
		var divided int
		db.Scan(t, `SELECT divided FROM {prefix}job WHERE id = :id`, sqlrun.Args{"id": id}, &divided)
		if divided != store.Divided("x", id, 5) {
			t.Errorf("block %d", divided)
		}
	})
}

func TestPromptWrites(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		c := client(t, db, Options{})
		payload := ` {"a" : [1, "é\u00e9 '\\ 👍"]}`
		id := p.must(t, call{queue: "q", kind: "ä'\\", payload: payload, key: "k\\'"})
		i, err := adminOf(c).Job(t.Context(), "q", id)
		must(t, err)
		if string(i.Payload) != payload || i.Kind != "ä'\\" || i.Key != "k\\'" || i.Priority != Normal || i.State != admin.StateReady {
			t.Errorf("got %+v", i)
		}
		var now int64
		db.Scan(t, `SELECT {us {now}}`, nil, &now)
		if age := time.UnixMicro(now).Sub(i.Enqueued); age < 0 || age > longWait {
			t.Errorf("it was enqueued %v ago", age)
		}

		id = p.must(t, call{queue: nil, kind: "k", key: "", runAt: time.Hour.Microseconds()})
		i, err = adminOf(c).Job(t.Context(), "", id)
		must(t, err)
		if i.State != admin.StateDelayed || i.Payload != nil || i.Key != "" || i.At.Sub(i.Enqueued).Round(time.Minute) != time.Hour {
			t.Errorf("got %+v", i)
		}
		id = p.must(t, call{queue: "", kind: "k", runAt: -time.Hour.Microseconds()})
		info(t, c, id, admin.StateReady)

		p.do(t, "START TRANSACTION", nil)
		id = p.must(t, call{queue: "new", kind: "k", key: "k"})
		p.do(t, "ROLLBACK", nil)
		_, err = adminOf(c).Job(t.Context(), "new", id)
		want(t, "a job that was rolled back", err, ErrNotFound)
	})
}

func TestPromptRefuses(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { q.MaxPayload = 10 })
		_, err := adminOf(c).Edit(t.Context(), "gone", func(q *admin.Queue) { q.State = "deleted" })
		must(t, err)
		queues := db.List(t, `SELECT COUNT(*) FROM {prefix}queue`, nil)
		deep := strings.Repeat("[", 600_000) + strings.Repeat("]", 600_000)
		for _, bad := range []struct {
			call
			why string
		}{
			{call{queue: "q", kind: nil}, "kind: name \"\": it is empty"},
			{call{queue: "q", kind: ""}, "it is empty"},
			{call{queue: " ", kind: "k"}, "queue: name \" \": it begins or ends with a blank"},
			{call{queue: "q", kind: "k "}, "begins or ends with a blank"},
			{call{queue: "q", kind: "k\u3000"}, "begins or ends with a blank"},
			{call{queue: "\u0085q", kind: "k"}, "begins or ends with a blank"},
			{call{queue: "q", kind: "k", key: "\u00a0k"}, "key: name"},
			{call{queue: "q\tq", kind: "k"}, "it has control characters"},
			{call{queue: "q\x01q", kind: "k"}, "it has control characters"},
			{call{queue: "q\x7fq", kind: "k"}, "it has control characters"},
			{call{queue: "q\u0080q", kind: "k"}, "it has control characters"},
			{call{queue: "q\u009fq", kind: "k"}, "it has control characters"},
			{call{queue: "q", kind: "k", key: strings.Repeat("é", 201)}, "it has more than 200 characters"},
			{call{queue: "q", kind: "k", payload: "{"}, "JSON"},
			{call{queue: "q", kind: "k", payload: ""}, "JSON"},
			{call{queue: "q", kind: "k", payload: "{'a': 1}"}, "JSON"},
			{call{queue: "q", kind: "k", payload: deep}, ""},
			{call{queue: "q", kind: "k", payload: `"` + strings.Repeat("x", 1<<20) + `"`}, "max_payload"},
			{call{queue: "default", kind: "k", payload: `"123456789"`}, "max_payload"},
			{call{queue: "gone", kind: "k"}, "was deleted"},
			{call{queue: "q", kind: "k", runAt: "9999-06-01 00:00:00"}, "run_at: it is after the year 9998"},
		} {
			id, err := p.enqueue(t.Context(), bad.call)
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(bad.why)) {
				t.Errorf("%.50q: got %d, %v", fmt.Sprint(bad.call), id, err)
			}
		}
		for _, good := range []call{
			{queue: "default", kind: "k", payload: `"12345678"`},
			{queue: "default", kind: "a b", key: "\u00e9\u00a0\u00a1x"},
			{queue: "default", kind: "\u00a1k\u00ff", key: strings.Repeat("👍", 200)},
		} {
			p.must(t, good)
		}
		left := db.List(t, `SELECT COUNT(*) FROM {prefix}job UNION ALL SELECT COUNT(*) FROM {prefix}job_delayed UNION ALL SELECT COUNT(*) FROM {prefix}queue`, nil)
		if got, want := strings.Join(left, " "), "3 0 "+queues[0]; got != want {
			t.Errorf("there are %s", got)
		}
	})
}

// What JSON is, is the same for SQL and Go.
func TestPromptTakesTheSameJSON(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		// MariaDB's JSON_VALID takes a little more, and nothing deep. MySQL's takes no number
		// that is too large for a DOUBLE.
		known := []string{`1.`, `1e999999`, `"\x"`, `"\ud800"`, strings.Repeat("[", 32) + strings.Repeat("]", 32)}
		for _, text := range []string{
			`1`, `-0`, `01`, `1.`, `.5`, `1e5`, `1E+5`, `1e`, `+1`, `--1`, `-`, `true`, `True`, `nul`, `null`,
			` null `, `NaN`, `"a"`, `"a`, `'a'`, `"\u00e9"`, `"\u00g9"`, `"\x"`,
			`"\ud800"`, "\"a\tb\"", "\"a\nb\"", "\"\x7f\"", `{}`, `{"a":1,}`, `{"a":1,"a":2}`, `{a:1}`, `{"a" 1}`,
			`[1 2]`, `[,]`, `[1,]`, `[]]`, `[] []`, `{"a":[{"b":null}]}`, "\u00a01", "\ufeff1",
			strings.Repeat("[", 32) + strings.Repeat("]", 32), `1e999999`, `123456789012345678901234567890`, `/**/1`, `"\/"`, `1//x`,
		} {
			_, err := p.enqueue(t.Context(), call{kind: "k", payload: text})
			if valid := json.Valid([]byte(text)); valid != (err == nil) && (db.Dialect.Name != mysql.Dialect.Name || !slices.Contains(known, text)) {
				t.Errorf("%q: Go says %v, the server %v", text, valid, err)
			}
		}
	})
}

func TestPromptDrawsAnotherID(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		c := client(t, db, Options{Blocks: 1})
		first := p.must(t, call{queue: "one", kind: "k"})
		q, err := c.read(t.Context(), "one")
		must(t, err)
		ahead := first>>store.IdBits + 30_000_000 // half a minute, which a clock may be set back
		if p.db.Dialect.Name == postgres.Dialect.Name {
			var text string
			must(t, p.on.Get(t.Context(), sqlrun.Unlisted(`SELECT set_config('dbcron_queue.tick', :tick, FALSE)`),
				sqlrun.Args{"tick": fmt.Sprint(ahead)}, &text))
		} else {
			p.do(t, `SET @dbcron_tick = :tick`, sqlrun.Args{"tick": ahead})
		}
		var jobs []jobRow
		for n := range int64(1 << store.IdBits) {
			id := (ahead+1)<<store.IdBits + n
			jobs = append(jobs, jobRow{Job: &Job{Kind: "k", Key: "x", Priority: Normal}, queue: q.ID, divided: q.Block("x", id), id: id})
		}
		for part := range slices.Chunk(jobs, store.Chunk) {
			must(t, c.insertAll(t.Context(), &db.Session, part))
		}
		if id := p.must(t, call{queue: "one", kind: "k", key: "x"}); id>>store.IdBits != ahead+2 {
			t.Errorf("got %d, want one of the tick after %d", id, ahead+1)
		}
		bits := int64(0)
		for range 20 {
			bits |= p.must(t, call{queue: "one", kind: "k", key: "x"})
		}
		if bits&127 == 0 { // of a number that has lost its last digits on the way
			t.Error("the last bits of ids are not drawn")
		}
	})
}

// Who may call it needs no right on the tables, and cannot slip others under it; and
// nobody may call it unasked.
func TestPromptRights(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		u, err := url.Parse(db.URL)
		must(t, err)
		name := "app_" + strings.TrimPrefix(u.Path, "/dbcron_")
		u.User = url.UserPassword(name, "secret")
		user, grants := name+"@'%'", []string{
			"GRANT EXECUTE ON PROCEDURE {prefix}enqueue TO ",
			"GRANT EXECUTE ON PROCEDURE {prefix}take TO ", "GRANT EXECUTE ON PROCEDURE {prefix}complete TO ",
		}
		if db.Dialect.Name == postgres.Dialect.Name {
			user, grants = name, []string{"GRANT EXECUTE ON FUNCTION {prefix}enqueue, {prefix}take, {prefix}complete TO ", "GRANT TEMPORARY ON DATABASE " + u.Path[1:] + " TO "}
			db.Do(t, `CREATE ROLE `+name+` LOGIN PASSWORD 'secret'`, nil)
		} else {
			db.Do(t, `CREATE USER `+user+` IDENTIFIED BY 'secret'`, nil)
		}
		t.Cleanup(func() {
			text := "DROP USER " + user
			if db.Dialect.Name == postgres.Dialect.Name {
				text = "DROP OWNED BY " + user + "; " + text
			}
			_, err := db.Pool().ExecContext(context.Background(), text)
			must(t, err)
		})
		if db.Dialect.Name == postgres.Dialect.Name {
			app := newPrompt(t, dbtest.Open(t, u.String(), dialect.Options{}))
			_, err = app.enqueue(t.Context(), call{queue: "q", kind: "k"})
			if !db.Dialect.Denied(err) {
				t.Errorf("unasked: %v", err)
			}
		}
		for _, grant := range grants {
			db.Do(t, grant+user, nil)
		}
		app := newPrompt(t, dbtest.Open(t, u.String(), dialect.Options{}))
		if db.Dialect.Name == postgres.Dialect.Name {
			app.do(t, `CREATE TEMPORARY TABLE dbcron_queue (queue_id INT, name TEXT, state TEXT, ordered TEXT, max_payload INT)`, nil)
			app.do(t, `CREATE TEMPORARY TABLE dbcron_job (queue_id INT, divided INT, priority INT, id BIGINT, kind TEXT, job_key TEXT, payload JSON)`, nil)
		}
		id := app.must(t, call{queue: "q", kind: "k", key: "x"})
		i, err := adminOf(client(t, db, Options{})).Job(t.Context(), "q", id)
		must(t, err)
		if i.Key != "x" {
			t.Errorf("got %+v", i)
		}
		if _, err := app.on.Exec(t.Context(), sqlrun.Unlisted(`DELETE FROM {prefix}queue_block`), nil); !db.Dialect.Denied(err) {
			t.Errorf("the tables: %v", err)
		}
		app.must(t, call{queue: "mail", kind: "welcome"})
		s := newSeat(t, db)
		s.prompt = app
		if s.take(t) == nil {
			t.Error("nothing was taken")
		}
		s.answers(t, "complete", "true")
		for _, part := range []string{"sql_us('1s')", "give_back(1, 'x')"} {
			text := "SELECT {prefix}" + part
			if db.Dialect.Name != postgres.Dialect.Name {
				text = "CALL {prefix}" + strings.TrimSuffix(part, ")") + ", @x)"
			}
			if _, err := app.on.Exec(t.Context(), sqlrun.Unlisted(text), nil); !db.Dialect.Denied(err) {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}
