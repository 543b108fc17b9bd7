package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// shownTaking are the blocks of statements that docs/queue-sql.md shows for an engine: they
// take jobs and finish them.
func shownTaking(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/queue-sql.md")
	must(t, err)
	title := map[string]string{"postgres": "PostgreSQL", "mysql": "MySQL and MariaDB", "sqlite": "SQLite"}[db.Dialect.Name]
	_, part, _ := strings.Cut(string(page), "\n## Take and finish jobs\n")
	_, part, _ = strings.Cut(part, "\n### "+title+"\n")
	part, _, _ = strings.Cut(part, "\n##")
	var all []string
	for _, block := range strings.Split(part, "```sql\n")[1:] {
		text, _, _ := strings.Cut(block, "\n```")
		all = append(all, text)
	}
	if db.Dialect.Routines { // a statement a line
		all = strings.Split(strings.Join(all, "\n"), "\n")
	}
	return all
}

// What a session can report about a job, as docs/queue-sql.md shows it.
var sayings = map[string][]string{
	"routines": {"take", "extend", "complete", "fail", "fail later", "bury", "give back"},
	"sqlite":   {"take", "extend", "complete", "fail", "bury", "give back"},
}

// A seat is a session at the SQL prompt that takes jobs as the page shows.
type seat struct {
	*prompt
	shown map[string]string
	n     int // of its takings
	last  taken
}

type taken struct {
	job                     int64
	token, kind, words, key string
	attempt, crashes        int
}

func newSeat(t *testing.T, db *dbtest.DB) *seat {
	t.Helper()
	s := &seat{prompt: newPrompt(t, db), shown: map[string]string{}}
	names := sayings["sqlite"]
	if db.Dialect.Routines {
		names = sayings["routines"]
	}
	blocks := shownTaking(t, db)
	if len(blocks) != len(names) {
		t.Fatalf("the page shows %d blocks of statements, and %v are wanted", len(blocks), names)
	}
	for i, name := range names {
		s.shown[name] = blocks[i]
	}
	return s
}

// take takes a job; nil if there is none.
func (s *seat) take(t *testing.T) *taken {
	t.Helper()
	got, err := s.tryTake(t.Context())
	must(t, err)
	return got
}

func (s *seat) tryTake(ctx context.Context) (*taken, error) {
	var row taken
	var words, key sql.NullString
	var bin []byte
	scan := []any{&row.job, &row.token, &row.kind, &words, &bin, &key, &row.attempt, new(int), new(sql.RawBytes)}
	text := strings.TrimSuffix(s.shown["take"], ` \gset`)
	if s.db.Dialect.Name != postgres.Dialect.Name && s.db.Dialect.Name != mysql.Dialect.Name {
		s.n++
		row.token = fmt.Sprintf("sql:%p:%d", s, s.n)
		s.last.token = row.token
		statements := strings.SplitAfter(s.fill(text), ";\n")
		for _, one := range statements[:len(statements)-1] {
			if _, err := s.conn.ExecContext(ctx, one); err != nil {
				_, _ = s.conn.ExecContext(ctx, "ROLLBACK")
				return nil, err
			}
		}
		text = statements[len(statements)-1]
		scan = []any{&row.job, &row.kind, &words, &bin, &key, &row.attempt, &row.crashes}
	}
	rows, err := s.conn.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return nil, rows.Err()
	}
	if err := errors.Join(rows.Scan(scan...), rows.Close(), rows.Err()); err != nil {
		return nil, err
	}
	row.words, row.key = words.String, key.String
	s.last = row
	return &row, nil
}

// fill replaces what a program, or psql, would fill in.
func (s *seat) fill(text string) string {
	return strings.NewReplacer(":job", fmt.Sprint(s.last.job), ":'token'", "'"+s.last.token+"'", "'sql:web1:8f3a'", "'"+s.last.token+"'").Replace(text)
}

// say reports the outcome of the job taken last, and returns the answer.
func (s *seat) say(t *testing.T, name string) string {
	t.Helper()
	text := s.fill(s.shown[name])
	var answer sql.NullString
	switch {
	case s.db.Dialect.Name == postgres.Dialect.Name:
		must(t, s.conn.QueryRowContext(t.Context(), text).Scan(&answer))
	case s.db.Dialect.Routines:
		_, err := s.conn.ExecContext(t.Context(), text)
		must(t, err)
		must(t, s.conn.QueryRowContext(t.Context(), "SELECT "+regexp.MustCompile(`(@\w+)\);$`).FindStringSubmatch(text)[1]).Scan(&answer))
	default:
		answer.String = s.sayPlainly(t, text)
	}
	if got, ok := map[string]string{"1": "true", "0": "false", "": "false"}[answer.String]; ok {
		return got
	}
	return answer.String
}

// sayPlainly runs statements of which the first UPDATE says whether the job is the session's.
func (s *seat) sayPlainly(t *testing.T, text string) string {
	t.Helper()
	mine := int64(-1)
	for _, one := range strings.SplitAfter(text, ";\n") {
		result, err := s.conn.ExecContext(t.Context(), one)
		for db := s.db.Dialect; db.Retryable(err) && mine < 0; { // others write: nothing has begun yet
			result, err = s.conn.ExecContext(t.Context(), one)
		}
		must(t, err)
		if n, _ := result.RowsAffected(); mine < 0 && strings.HasPrefix(one, "UPDATE") {
			if mine = n; n == 0 && strings.HasPrefix(text, "BEGIN") {
				_, err := s.conn.ExecContext(t.Context(), "ROLLBACK")
				must(t, err)
				return "false"
			}
		}
	}
	return fmt.Sprint(mine)
}

// expire ends the lease of the job that was taken last.
func (s *seat) expire(t *testing.T) {
	t.Helper()
	s.db.Do(t, `UPDATE {prefix}node SET expire_at = {now + -1000000} WHERE name = :name`, sqlrun.Args{"name": s.last.token})
}

func (s *seat) expect(t *testing.T, what string, id int64, attempt int) {
	t.Helper()
	got := s.take(t)
	switch {
	case got == nil && id != 0:
		t.Fatalf("%s: nothing was taken", what)
	case got != nil && (got.job != id || got.attempt != attempt):
		t.Fatalf("%s: got job %d at attempt %d, want %d at %d", what, got.job, got.attempt, id, attempt)
	}
}

func (s *seat) answers(t *testing.T, name, want string) {
	t.Helper()
	if got := s.say(t, name); got != want {
		t.Errorf("%s: got %s, want %s", name, got, want)
	}
}

// mailed reads a job of the queue mail that has to be in a state.
func mailed(t *testing.T, c *Client, id int64, state admin.State) admin.Job {
	t.Helper()
	i, err := adminOf(c).Job(t.Context(), "mail", id)
	must(t, err)
	if i.State != state {
		t.Errorf("job %d is %s, not %s", id, i.State, state)
	}
	return i
}

func TestPromptTakes(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	dbtest.SkipBare(t, "its transactions would have to be run again")
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		s, other := newSeat(t, db), newSeat(t, db)
		s.expect(t, "no queue", 0, 0)
		job := Job{Queue: "mail", Kind: "welcome", Key: "k", Payload: []byte(`{"n": "it's"}`)}
		first, second := enqueue(t, c, job), enqueue(t, c, job)
		s.expect(t, "the first", first, 1)
		if s.last.words != `{"n": "it's"}` || s.last.key != "k" || s.last.kind != "welcome" {
			t.Errorf("got %+v", s.last)
		}
		other.expect(t, "the second waits for the first", 0, 0)
		s.answers(t, "extend", "true")
		mailed(t, c, first, admin.StateRunning)
		s.answers(t, "complete", "true")
		for _, name := range []string{"complete", "extend", "fail", "bury", "give back"} {
			s.answers(t, name, "false")
		}
		s.expect(t, "the second", second, 1)
		third := enqueue(t, c, job)
		if got := s.say(t, "fail"); got == "false" || db.Dialect.Routines && got != "delayed" {
			t.Errorf("failing: %s", got)
		}
		if i := mailed(t, c, second, admin.StateDelayed); i.Attempts != 1 || i.Error != "no such host" || i.At.Sub(i.Enqueued) < time.Second {
			t.Errorf("got %+v", i)
		}
		other.expect(t, "the third waits for the second's retry", 0, 0)
		db.Do(t, `UPDATE {prefix}job_delayed SET run_at = {now + -1000}`, nil)
		other.expect(t, "the retry", second, 2)
		if got := other.say(t, "bury"); got == "false" || db.Dialect.Routines && got != "dead" {
			t.Errorf("burying: %s", got)
		}
		mailed(t, c, second, admin.StateDead)
		s.expect(t, "the third", third, 1)
		s.answers(t, "give back", "true")
		other.expect(t, "what was given back", third, 1)
		other.answers(t, "complete", "true")
		if got := db.List(t, `SELECT crashes FROM {prefix}job_dead UNION ALL SELECT COUNT(*) FROM {prefix}job_running UNION ALL SELECT COUNT(*) FROM {prefix}node WHERE state = 'live'`, nil); !slices.Equal(got, []string{"0", "0", "0"}) {
			t.Errorf("got %q", got)
		}
	})
}

// What is tied to a job, its unique key and its group, learns of its end.
func TestPromptEndsTies(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		_, err := adminOf(c).Edit(t.Context(), "mail", func(q *admin.Queue) { q.KeepDone = 7 * 24 * time.Hour })
		must(t, err)
		group, err := c.NewGroup(t.Context(), Group{})
		must(t, err)
		for _, unique := range []string{"a", "b"} {
			enqueue(t, c, Job{Queue: "mail", Kind: "welcome", Unique: unique, Group: group})
		}
		s := newSeat(t, db)
		for _, how := range []string{"complete", "bury"} {
			if s.take(t) == nil || s.say(t, how) == "false" {
				t.Fatal("a job is not taken and ended")
			}
		}
		got := db.List(t, `SELECT state, error FROM {prefix}job_member ORDER BY state`, nil)
		if want := []string{"dead no such user", "done "}; !slices.Equal(got, want) {
			t.Errorf("the group: %q", got)
		}
		left := db.List(t, `SELECT (SELECT COUNT(*) FROM {prefix}job_unique), (SELECT COUNT(*) FROM {prefix}job_done WHERE outcome = 'done'), (SELECT COUNT(*) FROM {prefix}job_dead)`, nil)
		made := db.List(t, `SELECT outcome, result FROM {prefix}v_job WHERE queue = 'mail' AND state = 'done'`, nil)
		want := "done NULL"
		if !db.Dialect.Routines {
			want = `done {"sent": true}` // as the page's statement says
		}
		if !slices.Equal(made, []string{want}) {
			t.Errorf("what is kept: %q", made)
		}
		if left[0] != "0 1 1" {
			t.Errorf("keys, done and dead: %q", left)
		}
	})
}

// A session that has died loses its job to another session or to a worker, and what it reports
// afterwards changes nothing.
func TestPromptSessionDies(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		s, other := newSeat(t, db), newSeat(t, db)
		id := enqueue(t, c, Job{Queue: "mail", Kind: "welcome", Key: "k"})
		s.expect(t, "the first", id, 1)
		other.expect(t, "it is the first session's", 0, 0)
		s.expire(t)
		for _, name := range []string{"extend", "complete"} {
			s.answers(t, name, "false")
		}
		other.expect(t, "it is taken over", id, 1)
		for _, name := range []string{"complete", "extend", "fail", "bury", "give back"} {
			s.answers(t, name, "false")
		}
		other.expire(t)
		var done record
		w := worker(t, c, WorkerOptions{Queues: []string{"mail"}})
		handle(t, w, "welcome", func(_ context.Context, d *Delivery) error {
			done.add("%d %d %d", d.ID, d.Attempt, d.Crashes)
			return nil
		})
		start(t, w)
		eventually(t, "a worker does it", func() bool { return done.len() == 1 })
		if got, want := done.all()[0], fmt.Sprint(id, " 1 2"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		other.answers(t, "complete", "false")
	})
}

// A job with which sessions die is a dead letter.
func TestPromptBuriesTheGuilty(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, _ *prompt) {
		c := client(t, db, Options{})
		_, err := adminOf(c).Edit(t.Context(), "mail", func(q *admin.Queue) { q.MaxCrashes = 2 })
		must(t, err)
		id := enqueue(t, c, Job{Queue: "mail", Kind: "welcome"})
		s := newSeat(t, db)
		for range 2 {
			s.expect(t, "it is tried", id, 1)
			s.expire(t)
		}
		s.expect(t, "it is tried no more", 0, 0)
		if i := mailed(t, c, id, admin.StateDead); i.Crashes != 2 {
			t.Errorf("got %+v", i)
		}
	})
}

// Jobs that a worker has, and jobs that are paused, limited or of another kind are not taken.
func TestPromptPassesOver(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		s := newSeat(t, db)
		enqueue(t, c, Job{Queue: "mail", Kind: "welcome"})
		_, err := adminOf(c).Edit(t.Context(), "mail", func(q *admin.Queue) { q.State = "paused" })
		must(t, err)
		s.expect(t, "the queue is paused", 0, 0)
		_, err = adminOf(c).Edit(t.Context(), "mail", func(q *admin.Queue) { q.State = "active" })
		must(t, err)
		_, err = adminOf(c).EditLimit(t.Context(), "mail", "welcome", func(l *admin.Limit) { l.Running = 1 })
		must(t, err)
		s.expect(t, "its kind is limited", 0, 0)
		must(t, adminOf(c).DeleteLimit(t.Context(), "mail", "welcome"))
		_, err = adminOf(c).EditLimit(t.Context(), "mail", "", func(l *admin.Limit) { l.Running = 1 })
		must(t, err)
		if got, err := s.tryTake(t.Context()); got != nil || (err != nil) != db.Dialect.Routines {
			t.Errorf("the queue is limited: %+v, %v", got, err)
		}
		must(t, adminOf(c).DeleteLimit(t.Context(), "mail", ""))

		release := make(chan struct{})
		var begun record
		w := worker(t, c, WorkerOptions{Queues: []string{"mail"}, Concurrency: 1})
		handle(t, w, "welcome", func(context.Context, *Delivery) error { begun.add("x"); <-release; return nil })
		stop := start(t, w)
		eventually(t, "a worker has the blocks", func() bool {
			return begun.len() == 1 && db.List(t, `SELECT COUNT(*) FROM {prefix}queue_block WHERE state = 'LEASED'`, nil)[0] == "2"
		})
		id := enqueue(t, c, Job{Queue: "mail", Kind: "welcome"})
		s.expect(t, "a worker has it", 0, 0)
		db.Do(t, `UPDATE {prefix}job SET kind = 'other' WHERE id = :id`, sqlrun.Args{"id": id})
		close(release)
		stop()
		if db.Dialect.Routines {
			s.expect(t, "it is of another kind", 0, 0)
		}
	})
}

// Sessions and workers side by side do each job once, and those of a key in their order.
func TestPromptDrainsBesideWorkers(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	dbtest.SkipBare(t, "its transactions would have to be run again")
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		s := newSequence()
		const n = 90
		jobs := s.jobs(map[string]int{}, n, "a", "b", "c", "d", "e", "f")
		for i := range jobs {
			jobs[i].Queue, jobs[i].Kind = "mail", "welcome"
		}
		_, err := c.EnqueueMany(t.Context(), jobs)
		must(t, err)
		do := s.handler(t, func(*Delivery) error { return nil })
		var bySeats, byWorkers record
		count := func() int { return bySeats.len() + byWorkers.len() }
		ctx, cancel := context.WithTimeout(t.Context(), longWait)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 {
			seat := newSeat(t, db)
			wg.Go(func() {
				for count() < n && ctx.Err() == nil && !t.Failed() {
					got, err := seat.tryTake(ctx)
					if err != nil && !db.Dialect.Retryable(err) {
						t.Error(err)
					}
					if got == nil { // ask again after a while, as the page says
						select {
						case <-ctx.Done():
						case <-time.After(5 * time.Millisecond):
						}
						continue
					}
					if err := do(ctx, &Delivery{Job: Job{Key: got.key, Payload: []byte(got.words)}}); err != nil {
						t.Error(err)
					}
					if seat.say(t, "complete") != "true" {
						t.Errorf("job %d is not ours", got.job)
					}
					bySeats.add("%d", got.job)
				}
			})
		}
		eventually(t, "sessions do some", func() bool { return bySeats.len() > 10 || t.Failed() })
		w := worker(t, other(t, db), WorkerOptions{Queues: []string{"mail"}, Concurrency: 2, Lease: longWait})
		handle(t, w, "welcome", func(ctx context.Context, d *Delivery) error {
			defer byWorkers.add("%d", d.ID)
			return do(ctx, d)
		})
		stop := start(t, w)
		eventually(t, "a worker does some, or nothing is left", func() bool { return byWorkers.len() > 20 || count() == n || t.Failed() })
		stop()
		wg.Wait()
		all := slices.Concat(bySeats.all(), byWorkers.all())
		slices.Sort(all)
		if len(all) != n || len(slices.Compact(all)) != n {
			t.Errorf("%d jobs were done, by sessions %d", len(all), bySeats.len())
		}
		t.Log("sessions did", bySeats.len(), "and a worker", byWorkers.len())
	})
}
