package queue

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Arguments that dbcron_enqueue and dbcron_enqueue_with have beyond those of a call, as SQL.
type further struct{ unique, uniqueFor, priority, attempts, timeout, tenant, uniqueUntil, runIn, debounce, cost string }

// with enqueues a job of the queue mail with some of these.
func (p *prompt) with(ctx context.Context, f further) (id int64, err error) {
	null := func(text string) string {
		if text == "" {
			return "NULL"
		}
		return text
	}
	if p.db.Dialect.Name == postgres.Dialect.Name {
		interval := func(seconds string) string { return "(" + null(seconds) + ") * INTERVAL '1 second'" }
		text := fmt.Sprintf("SELECT {prefix}enqueue('mail', 'welcome', unique_key => %s, unique_for => %s, priority => %s, attempts => %s, timeout => %s, tenant => %s, unique_until => %s, run_at => now() + %s, debounce => %s, cost => %s)",
			null(f.unique), interval(f.uniqueFor), null(f.priority), null(f.attempts), interval(f.timeout), null(f.tenant), null(f.uniqueUntil), interval(f.runIn), interval(f.debounce), null(f.cost))
		return id, p.on.Get(ctx, sqlrun.Unlisted(text), nil, &id)
	}
	text := fmt.Sprintf("CALL {prefix}enqueue_with('mail', 'welcome', NULL, NULL, TIMESTAMPADD(SECOND, %s, UTC_TIMESTAMP(6)), %s, %s, %s, %s, %s, %s, %s, %s, %s, @id)",
		null(f.runIn), null(f.unique), null(f.uniqueFor), null(f.priority), null(f.attempts), null(f.timeout), null(f.tenant), null(f.uniqueUntil), null(f.debounce), null(f.cost))
	if _, err := p.on.Exec(ctx, sqlrun.Unlisted(text), nil); err != nil {
		return 0, err
	}
	return id, p.on.Get(ctx, sqlrun.Unlisted("SELECT @id"), nil, &id)
}

func TestPromptEnqueuesWith(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		c := client(t, db, Options{})
		with := func(f further) int64 {
			t.Helper()
			id, err := p.with(t.Context(), f)
			must(t, err)
			return id
		}
		id := with(further{"'it''s'", "3600", "1", "3", "90.5", "'acme'", "'end'", "", "", "5"})
		i := mailed(t, c, id, admin.StateReady)
		if i.Priority != Urgent || i.MaxAttempts != 3 || i.Timeout != 90500*time.Millisecond || i.Unique != "it's" || i.Tenant != "acme" || i.Cost != 5 {
			t.Errorf("got %+v", i)
		}
		if again := with(further{unique: "'it''s'"}); again != id {
			t.Errorf("a second job %d has the key of %d", again, id)
		}
		same, err := c.Enqueue(t.Context(), Job{Queue: "mail", Kind: "welcome", Unique: "it's"})
		must(t, err)
		if !same.Existed || same.ID != id {
			t.Errorf("Go got %+v", same)
		}
		gone := with(further{unique: "'short'"})
		s := newSeat(t, db)
		for range 2 {
			if s.take(t) == nil || s.say(t, "complete") != "true" {
				t.Fatal("it was not done")
			}
		}
		if again := with(further{unique: "'it''s'"}); again != id {
			t.Errorf("job %d has a key that is in use for an hour", again)
		}
		db.Do(t, `UPDATE {prefix}job_unique SET free_at = {now + -1000000} WHERE free_at IS NOT NULL`, nil)
		if again := with(further{unique: "'it''s'"}); again == id {
			t.Error("a key is in use whose time is over")
		}
		if again := with(further{unique: "'short'"}); again == gone {
			t.Error("a key is in use whose job has ended")
		}
		if i := mailed(t, c, with(further{}), admin.StateReady); i.Priority != Normal || i.MaxAttempts != 0 || i.Timeout != 0 || i.Unique != "" {
			t.Errorf("got %+v", i)
		}
		begins := further{unique: "'begins'", uniqueUntil: "'begin'"}
		waits := with(begins)
		if again := with(begins); again != waits {
			t.Errorf("a second job %d has the key of %d", again, waits)
		}
		if i := mailed(t, c, waits, admin.StateReady); i.UniqueUntil != UntilBegin {
			t.Errorf("got %+v", i)
		}
		for got := s.take(t); got.job != waits; got = s.take(t) {
			s.say(t, "complete")
		}
		if again := with(begins); again == waits {
			t.Error("a key is in use whose job has begun")
		}
		s.say(t, "complete")
		if again := with(begins); again == waits || keysOf(t, db) == 0 {
			t.Error("the end of a job that has begun freed the key of the next one")
		}
		with(further{timeout: "3600"})
		for timeout, set := range map[string]func(*admin.Queue){
			"60":     func(q *admin.Queue) { q.MaxTimeout, q.Timeout = time.Minute, 0 },
			"7200":   func(q *admin.Queue) { q.MaxTimeout, q.Timeout = time.Minute, 2*time.Hour },
			"864000": func(q *admin.Queue) { q.MaxTimeout, q.Timeout = 0, 0 },
		} {
			_, err = adminOf(c).Edit(t.Context(), "mail", set)
			must(t, err)
			with(further{timeout: timeout})
			if id, err := p.with(t.Context(), further{timeout: timeout + ".001"}); timeout != "864000" && (err == nil || !strings.Contains(err.Error(), "max_timeout")) {
				t.Errorf("a timeout of more than %s: %d, %v", timeout, id, err)
			}
		}
		_, err = adminOf(c).Edit(t.Context(), "mail", func(q *admin.Queue) { q.FIFO, q.MaxTimeout, q.Timeout = true, time.Hour, 0 })
		must(t, err)
		db.Do(t, `UPDATE {prefix}queue_block SET insert_time = {now + :us}`, sqlrun.Args{"us": -store.ResizeAfter.Microseconds() - 1})
		for _, bad := range []further{
			{unique: "' x'"},
			{priority: "0"},
			{priority: "5"},
			{attempts: "-1"},
			{timeout: "-1"},
			{timeout: "3600.001"},
			{uniqueFor: "1"},
			{uniqueUntil: "'begin'"},
			{unique: "'x'", uniqueUntil: "'start'"},
			{unique: "'x'", uniqueFor: "-1"},
			{unique: "'x'", uniqueFor: "31622401"},
			{priority: "1"},
			{runIn: "1", debounce: "2"},
			{unique: "'x'", debounce: "2"},
			{unique: "'x'", runIn: "3", debounce: "2"},
			{unique: "'x'", runIn: "1", debounce: "-2"},
			{unique: "'x'", runIn: "1", debounce: "31622401"},
			{unique: "'x'", runIn: "1", debounce: "2", uniqueFor: "3"},
		} {
			if id, err := p.with(t.Context(), bad); err == nil {
				t.Errorf("%+v: got %d", bad, id)
			}
		}
	})
}

// Go and the prompt replace each other's jobs, also in another block, and those of callers who come at the same moment.
func TestPromptDebounce(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		c := client(t, db, Options{Blocks: 4})
		inGo := Job{Queue: "mail", Kind: "welcome", Unique: "k", Delay: time.Hour, Debounce: 90 * time.Minute}
		again := further{unique: "'k'", runIn: "3600", debounce: "5400"}
		wantLeft := func(what string, ids ...int64) {
			t.Helper()
			var want []string
			for _, id := range ids {
				want = append(want, fmt.Sprint(id, " begin"))
			}
			wantRows(t, db, what, "SELECT id, unique_until FROM {prefix}job_delayed ORDER BY id", want...)
		}
		wantFresh(t, c, inGo)
		second, err := p.with(t.Context(), again)
		must(t, err)
		wantLeft("after Go", second)
		third, err := p.with(t.Context(), again)
		must(t, err)
		wantLeft("after the prompt", third)
		byHand(t, db, "UPDATE {prefix}job_delayed SET divided = CASE divided WHEN 0 THEN 1 ELSE 0 END")
		fourth, err := p.with(t.Context(), further{unique: "'k'", runIn: "5400", debounce: "5400"})
		must(t, err)
		i := mailed(t, c, fourth, admin.StateDelayed)
		if early := i.Enqueued.Add(90 * time.Minute).Sub(i.At); early < time.Millisecond {
			t.Errorf("it starts at %v, and the first one came before %v", i.At, i.Enqueued)
		}
		wantLeft("after another block", fourth)
		fifth := wantFresh(t, c, inGo)
		wantLeft("after the prompt, in Go", fifth)
		byHand(t, db, "UPDATE {prefix}job_unique SET wait_until = "+ago)
		behind, err := p.with(t.Context(), again) // nobody serves the queue
		must(t, err)
		wantLeft("of a queue that is behind", behind)
		wantRows(t, db, "it is due", "SELECT id FROM {prefix}job_delayed WHERE run_at < {now}", fmt.Sprint(behind))
		byHand(t, db, "UPDATE {prefix}queue_block SET state = 'LEASED'")
		fifth = behind
		sixth, err := p.with(t.Context(), again)
		must(t, err)
		wantLeft("after one whose turn has come", fifth, sixth)
		if holder, err := p.with(t.Context(), further{unique: "'k'"}); err != nil || holder != sixth {
			t.Errorf("another job got %d, %v, and the key is that of %d", holder, err, sixth)
		}

		byHand(t, db, "DELETE FROM {prefix}job_unique")
		byHand(t, db, "DELETE FROM {prefix}job_delayed")
		var wg sync.WaitGroup
		for i := range 4 {
			p := newPrompt(t, db)
			wg.Go(func() {
				for n := 0; n < 5; {
					var err error
					if i%2 == 0 {
						_, err = p.with(t.Context(), again)
					} else {
						_, err = c.Enqueue(t.Context(), inGo)
					}
					switch {
					case err == nil:
						n++
					case !db.Dialect.Retryable(err):
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		wantRows(t, db, "left", "SELECT COUNT(*), MIN(u.job - j.id), MAX(u.job - j.id) FROM {prefix}job_delayed AS j, {prefix}job_unique AS u", "1 0 0")
	})
}

// Of several who enqueue with one unique key at the same moment, in Go and at the prompt, one does.
func TestPromptUniqueAtOnce(t *testing.T) {
	dbtest.SkipBare(t, "its transactions would have to be run again")
	atPrompt(t, func(t *testing.T, db *dbtest.DB, _ *prompt) {
		c := client(t, db, Options{})
		_, err := c.queue(t.Context(), "mail")
		must(t, err)
		const rounds = 15
		got := make([][]int64, 6)
		var wg sync.WaitGroup
		for i := range got {
			p, mine := newPrompt(t, db), &got[i]
			wg.Go(func() {
				for n := range rounds {
					unique := fmt.Sprint("u", n)
					for {
						var id int64
						var err error
						if i%2 == 0 {
							id, err = p.with(t.Context(), further{unique: "'" + unique + "'"})
						} else {
							var one Enqueued
							one, err = c.Enqueue(t.Context(), Job{Queue: "mail", Kind: "welcome", Unique: unique})
							id = one.ID
						}
						if err == nil {
							*mine = append(*mine, id)
							break
						}
						if !db.Dialect.Retryable(err) {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		for i := range got {
			if !slices.Equal(got[i], got[0]) {
				t.Errorf("got %v and %v", got[i], got[0])
			}
		}
		if n := db.List(t, `SELECT COUNT(*) FROM {prefix}job`, nil)[0]; n != fmt.Sprint(rounds) {
			t.Errorf("there are %s jobs", n)
		}
	})
}

// What docs/queue-sql.md shows of enqueueing does as it says.
func TestPromptShown(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		page, err := os.ReadFile("../docs/queue-sql.md")
		must(t, err)
		_, part, _ := strings.Cut(string(page), "\n## Enqueue\n")
		part, _, _ = strings.Cut(part, "\n## ")
		blocks := strings.Split(part, "```sql\n")
		if len(blocks) != 3 {
			t.Fatalf("%d blocks", len(blocks)-1)
		}
		db.Do(t, `CREATE TABLE orders (number INT NOT NULL, customer VARCHAR(20) NOT NULL)`, nil)
		text, _, _ := strings.Cut(blocks[2], "```")
		statements := strings.SplitAfter(text, ";\n")
		if db.Dialect.Name == postgres.Dialect.Name {
			text, _, _ = strings.Cut(blocks[1], "```")
			statements = []string{text}
		}
		for _, one := range statements {
			if strings.TrimSpace(one) != "" {
				_, err = p.conn.ExecContext(t.Context(), one)
				must(t, err)
			}
		}
		p.do(t, `INSERT INTO orders VALUES (1, 'a'), (2, 'b')`, nil)
		got := db.List(t, `SELECT queue, kind, COALESCE(job_key, '-'), priority FROM {prefix}v_job WHERE queue = 'orders' OR priority = 1 ORDER BY queue, job_key`, nil)
		if want := []string{"mail welcome - 1", "orders placed a 2", "orders placed b 2"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		var id sql.NullInt64
		if db.Dialect.Name != postgres.Dialect.Name {
			must(t, p.on.Get(t.Context(), sqlrun.Unlisted(`SELECT @dbcron_id`), nil, &id))
			if id.Int64 == 0 {
				t.Error("no id")
			}
		}
	})
}
