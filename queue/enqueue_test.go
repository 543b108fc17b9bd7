package queue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
	"github.com/dbcron/dbcron/sqlschema"
)

// Nothing of what cannot be is written, by whichever way it comes.
func TestEnqueueInvalid(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		_, err := adminOf(c).Edit(t.Context(), "small", func(q *admin.Queue) { q.MaxPayload, q.MaxTimeout = 10, time.Minute })
		must(t, err)
		_, err = adminOf(c).Edit(t.Context(), "long", func(q *admin.Queue) { q.Timeout = 2 * time.Hour })
		must(t, err)
		_, err = adminOf(c).Edit(t.Context(), "any", func(q *admin.Queue) { q.MaxTimeout = 0 })
		must(t, err)
		_, err = adminOf(c).Edit(t.Context(), "gone", func(q *admin.Queue) { q.State = "deleted" })
		must(t, err)
		good := Job{Kind: "x"}
		with := func(change func(*Job)) Job {
			j := good
			change(&j)
			return j
		}
		for name, bad := range map[string]struct {
			job Job
			err error
		}{
			"large":              {with(func(j *Job) { j.Queue, j.Payload = "small", []byte(`"123456789"`) }), ErrTooLarge},
			"large and binary":   {with(func(j *Job) { j.Queue, j.Payload, j.Binary = "small", make([]byte, 11), true }), ErrTooLarge},
			"not JSON":           {with(func(j *Job) { j.Payload = []byte(`{"a":`) }), ErrInvalid},
			"two JSONs":          {with(func(j *Job) { j.Payload = []byte(`{} {}`) }), ErrInvalid},
			"blank":              {with(func(j *Job) { j.Payload = []byte(` `) }), ErrInvalid},
			"not UTF-8":          {with(func(j *Job) { j.Payload = []byte("\"\xff\"") }), ErrInvalid},
			"NUL":                {with(func(j *Job) { j.Payload = []byte("\"\x00\"") }), ErrInvalid},
			"very deep":          {with(func(j *Job) { j.Payload = []byte(strings.Repeat("[", 1001) + strings.Repeat("]", 1001)) }), ErrInvalid},
			"no kind":            {with(func(j *Job) { j.Kind = "" }), ErrInvalid},
			"long kind":          {with(func(j *Job) { j.Kind = strings.Repeat("ü", 201) }), ErrInvalid},
			"kind with a blank":  {with(func(j *Job) { j.Kind = "x " }), ErrInvalid},
			"kind of two lines":  {with(func(j *Job) { j.Kind = "x\ny" }), ErrInvalid},
			"kind with NUL":      {with(func(j *Job) { j.Kind = "x\x00y" }), ErrInvalid},
			"queue with a tab":   {with(func(j *Job) { j.Queue = "x\ty" }), ErrInvalid},
			"long key":           {with(func(j *Job) { j.Key = strings.Repeat("k", 201) }), ErrInvalid},
			"huge key":           {with(func(j *Job) { j.Key = strings.Repeat("k", 1<<20) }), ErrInvalid},
			"key not UTF-8":      {with(func(j *Job) { j.Key = "\xff" }), ErrInvalid},
			"blank key":          {with(func(j *Job) { j.Key = " " }), ErrInvalid},
			"priority -1":        {with(func(j *Job) { j.Priority = -1 }), ErrInvalid},
			"priority 5":         {with(func(j *Job) { j.Priority = 5 }), ErrInvalid},
			"negative delay":     {with(func(j *Job) { j.Delay = -1 }), ErrInvalid},
			"long delay":         {with(func(j *Job) { j.Delay = plain.LongestDuration + 1 }), ErrInvalid},
			"endless delay":      {with(func(j *Job) { j.Delay = math.MaxInt64 }), ErrInvalid},
			"delay and time":     {with(func(j *Job) { j.Delay, j.RunAt = 1, dbtest.Start }), ErrInvalid},
			"year 9999":          {with(func(j *Job) { j.RunAt = latest.Add(1) }), ErrInvalid},
			"year 200000":        {with(func(j *Job) { j.RunAt = latest.AddDate(190_000, 0, 0) }), ErrInvalid},
			"negative attempts":  {with(func(j *Job) { j.MaxAttempts = -1 }), ErrInvalid},
			"too many attempts":  {with(func(j *Job) { j.MaxAttempts = math.MaxInt32 + 1 }), ErrInvalid},
			"negative timeout":   {with(func(j *Job) { j.Timeout = -1 }), ErrInvalid},
			"long timeout":       {with(func(j *Job) { j.Queue, j.Timeout = "any", math.MaxInt64 }), ErrInvalid},
			"longer than usual":  {with(func(j *Job) { j.Timeout = time.Hour + 1 }), ErrInvalid},
			"longer than small":  {with(func(j *Job) { j.Queue, j.Timeout = "small", time.Minute+1 }), ErrInvalid},
			"longer than long":   {with(func(j *Job) { j.Queue, j.Timeout = "long", 2*time.Hour+1 }), ErrInvalid},
			"trace of two lines": {with(func(j *Job) { j.Trace = "a\nb" }), ErrInvalid},
			"long trace":         {with(func(j *Job) { j.Trace = strings.Repeat("a", 513) }), ErrInvalid},
			"deleted":            {with(func(j *Job) { j.Queue = "gone" }), ErrDeleted},
			"not to be encoded":  {Kind[chan int]{Name: "x"}.Job(make(chan int)), ErrInvalid},
			"infinite":           {Kind[float64]{Name: "x"}.Job(math.Inf(1)), ErrInvalid},
		} {
			_, err := c.Enqueue(t.Context(), bad.job)
			want(t, name, err, bad.err)
			ids, err := c.EnqueueMany(t.Context(), []Job{good, bad.job, good})
			want(t, name+" among others", err, bad.err)
			if ids != nil || !strings.Contains(fmt.Sprint(err), "job 2 of 3") {
				t.Errorf("%s among others: %v, %v", name, ids, err)
			}
			_, _, err = c.EnqueueTx(t.Context(), db.Pool(), good, bad.job)
			want(t, name+" in a transaction", err, bad.err)
			if n := len(fmt.Sprint(err)); n > 2000 {
				t.Errorf("%s: the message has %d bytes", name, n)
			}
		}
		if n := rowsOf(t, db); n != 0 {
			t.Errorf("%d jobs were written", n)
		}
		for _, job := range []Job{ // just within bounds
			with(func(j *Job) { j.RunAt = latest }), // which is long after dbtest.Start
			with(func(j *Job) { j.Delay = plain.LongestDuration }),
			with(func(j *Job) { j.Timeout = time.Hour }),
			with(func(j *Job) { j.Queue, j.Timeout = "long", 2*time.Hour }),
			with(func(j *Job) { j.Queue, j.Timeout = "any", plain.LongestDuration }),
			with(func(j *Job) { j.Key, j.Kind = strings.Repeat("😀", 200), strings.Repeat("😀", 200) }),
			with(func(j *Job) { j.Queue, j.Payload = "small", []byte(`"12345678"`) }),
			with(func(j *Job) { j.Trace = traceOf("within bounds") }),
			with(func(j *Job) { j.RunAt = time.Unix(0, 0) }),
			with(func(j *Job) { j.RunAt = time.Unix(-1<<62, 0) }), // more µs than an int64 has
		} {
			id := enqueue(t, c, job)
			i, err := adminOf(c).Job(t.Context(), job.Queue, id)
			must(t, err)
			if waits := job.Delay > 0 || job.RunAt.After(dbtest.Start); waits != (i.State == admin.StateDelayed) {
				t.Errorf("%v, %v: it is %s", job.RunAt, job.Delay, i.State)
			}
			if i.Key != job.Key || i.Kind != job.Kind || i.Timeout != job.Timeout || i.Trace != job.Trace {
				t.Errorf("enqueued %+v, and there is %+v", job, i)
			}
		}
	})
}

// payloads are hard to store or to send.
var payloads = func() map[string]Job {
	all := map[string]Job{}
	for name, text := range map[string]string{
		"none":             "",
		"null":             "null",
		"four bytes":       `"😀𝄞\ud83d\ude00"`,
		"quotes":           `{"a'b\"c": "\\ \\\\ \" ' ` + "`" + ` \/"}`,
		"NUL in words":     `"\u0000"`,
		"half a pair":      `"\ud800"`,
		"braces":           `[{}, {"a,b": "{,}"}, "{values}", "{prefix}", ":name", "$1", "?", "%s", "NULL", null]`,
		"blanks":           " {\n\t\"b\" : 1 ,\r \"a\":2, \"a\" : 3 } \n",
		"numbers":          `[1.0, 1e400, -0, 123456789012345678901234567890, 0.1000]`,
		"100 KB":           `"` + strings.Repeat(`ab\\c, {"😀`[:8], 12_800) + `"`,
		"nested":           strings.Repeat(`{"[":[`, 500) + strings.Repeat("]}", 500),
		"control":          `"\u0001\b\f\n\r\t\u007f\u0085\u2028\ufeff"`,
		"control verbatim": "\"\u007f\u0085\u2028\ufeff\"",
		"array of text":    `"{\"a\",NULL,b\\}"`,
	} {
		all[name] = Job{Payload: []byte(text)}
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, text := range map[string][]byte{
		"no bytes": {}, "a NUL": {0}, "every byte": every, "0xff": {0xff, 0xff}, "100 KB of bytes": bytes.Repeat(every, 400),
		"hex": []byte(`\x00`),
	} {
		all[name] = Job{Payload: text, Binary: true}
	}
	for name, j := range all {
		j.Kind = "echo"
		j.Trace = traceOf(name)
		all[name] = j
	}
	return all
}()

// traceOf makes a traceparent of a name.
func traceOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("00-%x-%x-01", sum[:16], sum[16:24])
}

// What was enqueued comes back byte for byte, by each way in and each way out.
func TestPayloads(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var jobs []Job
		enqueued := map[int64]Job{}
		for name, j := range payloads {
			e, err := c.Enqueue(t.Context(), j)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			enqueued[e.ID] = j
			jobs = append(jobs, j)
		}
		ways := map[string]func(*testing.T, []Job) []int64{
			"many": func(t *testing.T, jobs []Job) []int64 { return enqueueMany(t, c, jobs) },
			"very many": func(t *testing.T, jobs []Job) []int64 {
				more := slices.Clone(jobs)
				for len(more) <= store.Chunk {
					more = append(more, Job{Kind: "filler"})
				}
				return enqueueMany(t, c, more)[:len(jobs)]
			},
			"as many as are copied": func(t *testing.T, jobs []Job) []int64 {
				return enqueueMany(t, c, slices.Concat(jobs, slices.Repeat([]Job{{Kind: "filler"}}, copyFrom)))[:len(jobs)]
			},
			"delayed": func(t *testing.T, jobs []Job) []int64 {
				jobs = slices.Clone(jobs)
				for i := range jobs {
					jobs[i].Delay = time.Millisecond
				}
				return enqueueMany(t, c, jobs)
			},
			"in a transaction": func(t *testing.T, jobs []Job) (ids []int64) {
				tx := db.Begin(t, nil)
				defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
				all, wake, err := c.EnqueueTx(t.Context(), tx, jobs...)
				must(t, err)
				must(t, tx.Commit())
				wake()
				return idsOfAll(all)
			},
		}
		for way, enqueueAll := range ways {
			for i, id := range enqueueAll(t, jobs) {
				enqueued[id] = jobs[i]
				got, err := adminOf(c).Job(t.Context(), "", id)
				if err != nil {
					t.Errorf("%s, %s: %v", way, jobs[i].Trace, err)
				} else if !bytes.Equal(got.Payload, jobs[i].Payload) || got.Binary != (jobs[i].Binary && len(jobs[i].Payload) > 0) {
					t.Errorf("%s, %s: stored %.100q (binary %v)", way, jobs[i].Trace, got.Payload, got.Binary)
				}
			}
		}
		w := worker(t, c, WorkerOptions{})
		var mu sync.Mutex
		done := map[int64]bool{}
		handle(t, w, "filler", func(context.Context, *Delivery) error { return nil })
		handle(t, w, "echo", func(_ context.Context, d *Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if j, ok := enqueued[d.ID]; !ok || !bytes.Equal(d.Payload, j.Payload) || d.Binary != (j.Binary && len(j.Payload) > 0) ||
				d.Trace != j.Trace {
				t.Errorf("%s: got %.100q (binary %v)", j.Trace, d.Payload, d.Binary)
			}
			done[d.ID] = true
			if d.Attempt == 1 && d.ID%3 == 0 { // and once more by way of another table
				return RetryAfter(0, errors.New("once more"))
			}
			return nil
		})
		start(t, w)
		empty(t, db)
		mu.Lock()
		defer mu.Unlock()
		if len(done) != len(enqueued) {
			t.Errorf("%d of %d were done", len(done), len(enqueued))
		}
	})
}

// What is enqueued in a transaction is there when it is committed, and never if it is
// rolled back.
func TestEnqueueTx(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		enqueue(t, c, Job{Kind: "first"}) // makes the queue, which SQLite could not beside a transaction
		var r record
		w := worker(t, c, WorkerOptions{})
		for _, kind := range []string{"first", "kept", "undone"} {
			handle(t, w, kind, func(_ context.Context, d *Delivery) error { r.add("%s", d.Kind); return nil })
		}
		start(t, w)
		r.wants(t, "first")
		for _, kind := range []string{"undone", "kept"} {
			tx := db.Begin(t, nil)
			ids, wake, err := c.EnqueueTx(t.Context(), tx, Job{Kind: kind}, Job{Kind: kind, Delay: time.Millisecond})
			must(t, err)
			if len(ids) != 2 || ids[0].ID >= ids[1].ID {
				t.Errorf("ids %v", ids)
			}
			if kind == "kept" {
				must(t, tx.Commit())
			} else {
				must(t, tx.Rollback())
			}
			wake()
		}
		r.wants(t, "first", "kept", "kept")
		empty(t, db)
		ids, wake, err := c.EnqueueTx(t.Context(), nil)
		must(t, err)
		wake()
		if len(ids) != 0 {
			t.Errorf("ids %v of no jobs", ids)
		}
	})
}

// Callers that come at once get each their own id, or error.
func TestEnqueueAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, c2 := client(t, db, Options{}), other(t, db)
		var mu sync.Mutex
		ids := map[int64]bool{}
		var group sync.WaitGroup
		for g := range 64 {
			from := c
			if g%2 == 1 {
				from = c2
			}
			group.Go(func() {
				last := int64(0)
				for i := range 5 {
					e, err := from.Enqueue(t.Context(), Job{Kind: "x", Key: fmt.Sprint(g)})
					id := e.ID
					if err != nil || id <= last {
						t.Errorf("caller %d: id %d after %d: %v", g, id, last, err)
					}
					last = id
					mu.Lock()
					ids[id] = true
					mu.Unlock()
					if _, err := from.Enqueue(t.Context(), Job{Kind: "x", Payload: []byte("{")}); i == 0 && !errors.Is(err, ErrInvalid) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		if n := rowsOf(t, db); n != 64*5 || len(ids) != n {
			t.Errorf("%d jobs and %d ids", n, len(ids))
		}
	})
}

// A context that has ended enqueues nothing, and says so.
func TestEnqueueCancelled(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		_, err := adminOf(c).Queue(t.Context(), defaultQueue)
		want(t, "a queue before its first job", err, ErrNotFound)
		enqueue(t, c, Job{Kind: "x"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			_, err := c.Enqueue(ctx, Job{Kind: "x"})
			want(t, "one", err, context.Canceled)
			_, err2 := c.EnqueueMany(ctx, []Job{{Kind: "x"}, {Kind: "x", Delay: time.Hour}})
			want(t, "many", err2, context.Canceled)
			if errors.Is(err, ErrUnknownOutcome) || errors.Is(err2, ErrUnknownOutcome) {
				t.Fatalf("the outcome is known: %v, %v", err, err2)
			}
		}
		if n := rowsOf(t, db); n != 1 {
			t.Errorf("%d jobs are there", n)
		}
	})
}

// The connection is cut at each round trip in turn, before or after the server has
// done the work: what was said to be enqueued is, what was said to have failed is
// not, and what is unknown is there once or not at all; of many, all or none. So it is where
// something before the server says so in its own words.
func TestEnqueueFaults(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		enqueue(t, client(t, db, Options{}), Job{Kind: "first"})
		many := make([]Job, store.Chunk+1)
		for i := range many {
			many[i].Kind = "many"
		}
		sets := map[string][]Job{"one": {{Kind: "one"}}, "two": {{Kind: "two"}, {Kind: "two", Delay: time.Hour}}, "many": many}
		for name, jobs := range sets {
			enqueueFaults(t, db, name, jobs, nil)
		}
		for who, says := range dbtest.Unanswered(db.Dialect) {
			for _, name := range []string{"one", "two"} {
				enqueueFaults(t, db, name+", "+who, sets[name], says)
			}
		}
	})
}

func enqueueFaults(t *testing.T, db *dbtest.DB, name string, jobs []Job, says error) {
	t.Helper()
	for _, after := range []bool{false, true} {
		for call := 1; ; call++ {
			db.Do(t, `DELETE FROM {prefix}job`, nil)
			db.Do(t, `DELETE FROM {prefix}job_delayed`, nil)
			fault := &dbtest.Fault{Call: call, After: after, Says: says}
			on := db.Broken(t, fault)
			broken := client(t, on, Options{})
			var err error
			if len(jobs) == 1 {
				_, err = broken.Enqueue(t.Context(), jobs[0])
			} else {
				_, err = broken.EnqueueMany(t.Context(), jobs)
			}
			n := rowsOf(t, db)
			unknown := errors.Is(err, ErrUnknownOutcome)
			switch {
			case err == nil && n == len(jobs):
			case unknown && (n == 0 || n == len(jobs)):
			case err != nil && !unknown && n == 0:
			default:
				t.Errorf("%s, call %d (after: %v): %d jobs are there: %v", name, call, after, n, err)
			}
			must(t, broken.Flush(t.Context()))
			must(t, on.Pool().Close()) // there are many
			if !fault.Reached() {
				break
			}
		}
	}
}

// A caller that would rather be told than wait, such as the HTTP API, is told after the first try: without a deadline the others try for a minute.
func TestRetryForNoTime(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		enqueue(t, client(t, db, Options{}), Job{Kind: "first"})
		var tries atomic.Int64
		broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) { tries.Add(1); return true, false }})
		c := client(t, broken, Options{RetryFor: -1})
		for name, call := range map[string]func(context.Context) error{
			"Enqueue": func(ctx context.Context) error { _, err := c.Enqueue(ctx, Job{Kind: "one"}); return err },
			"unique":  func(ctx context.Context) error { _, err := c.Enqueue(ctx, Job{Kind: "one", Unique: "k"}); return err },
			"EnqueueMany": func(ctx context.Context) error {
				_, err := c.EnqueueMany(ctx, []Job{{Kind: "one"}, {Kind: "two"}})
				return err
			},
		} {
			bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, ctx := range []context.Context{t.Context(), bounded} {
				tries.Store(0)
				if err := call(ctx); err == nil || errors.Is(err, ErrUnknownOutcome) || tries.Load() > 3 {
					_, is := ctx.Deadline()
					t.Errorf("%s, with a deadline %v: %v, after %d round trips", name, is, err, tries.Load())
				}
			}
		}
		if n := rowsOf(t, db); n != 1 {
			t.Errorf("%d jobs are there", n)
		}
	})
}

// A transaction may make the queue, and enqueue its first job with a key, also where
// nothing can be written beside it; and nothing of that is remembered if it is rolled
// back.
func TestEnqueueTxFirst(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		job := Job{Queue: "new", Kind: "x", Key: "k"}
		back := errors.New("rolled back")
		err := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
			if _, _, err := c.EnqueueTx(ctx, tx.Execer(), job); err != nil {
				return err
			}
			return back
		})
		want(t, "the transaction", err, back)
		var ids []int64
		must(t, db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) (err error) {
			all, _, err := c.EnqueueTx(ctx, tx.Execer(), job)
			ids = idsOfAll(all)
			return err
		}))
		if i, err := adminOf(c).Job(t.Context(), "new", ids[0]); err != nil || i.State != admin.StateReady {
			t.Errorf("it is %v, %v", i.State, err)
		}
		if n := enqueue(t, c, job); n <= ids[0] {
			t.Errorf("id %d comes after %d", n, ids[0])
		}
	})
}

// Where the table has policies, which a bulk load cannot check, many jobs are inserted.
func TestEnqueueManyUnderPolicies(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		must(t, sqlschema.Migrate(t.Context(), db.DB))
		u, err := url.Parse(db.URL)
		must(t, err)
		name := "policy_" + strings.TrimPrefix(u.Path, "/dbcron_")
		u.User = url.UserPassword(name, "secret")
		byHand(t, db, `CREATE ROLE `+name+` LOGIN PASSWORD 'secret'`, `GRANT ALL ON ALL TABLES IN SCHEMA public TO `+name,
			`GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO `+name,
			`ALTER TABLE {prefix}job ENABLE ROW LEVEL SECURITY`, `CREATE POLICY all_of_it ON {prefix}job USING (true) WITH CHECK (true)`)
		t.Cleanup(func() {
			_, err := db.Pool().ExecContext(context.Background(), "DROP OWNED BY "+name+"; DROP ROLE "+name)
			must(t, err)
		})
		c := client(t, dbtest.Open(t, u.String(), dialect.Options{}), Options{})
		for _, n := range []int{copyFrom, store.Chunk + 1} {
			enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x"}}, n))
		}
		wantRows(t, db, "jobs", `SELECT COUNT(*) FROM {prefix}job`, fmt.Sprint(copyFrom+store.Chunk+1))
	})
}

// Callers who meet nobody write their jobs themselves, and writers take those of the others; none stays behind.
func TestEnqueueTogether(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var group sync.WaitGroup
		for i := range 16 {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = context.WithoutCancel(ctx)
			}
			group.Go(func() {
				for range 10 {
					if _, err := c.Enqueue(ctx, Job{Kind: "x"}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		if n := rowsOf(t, db); n != 160 {
			t.Errorf("%d jobs", n)
		}
		eventually(t, "nobody writes any more", func() bool {
			c.out.mu.Lock()
			defer c.out.mu.Unlock()
			return c.out.writers == 0 && len(c.out.waiting) == 0
		})
	})
}

// However many jobs are the first ones with keys, and however their queues take turns, what is known of the queues is read and written once.
func TestFirstKeysTakeFewStatements(t *testing.T) {
	for name, enqueue := range map[string]func(*testing.T, *Client, []Job){
		"EnqueueMany": func(t *testing.T, c *Client, jobs []Job) { enqueueMany(t, c, jobs) },
		"EnqueueTx": func(t *testing.T, c *Client, jobs []Job) {
			tx, err := c.db.Pool().BeginTx(t.Context(), nil)
			must(t, err)
			_, _, err = c.EnqueueTx(t.Context(), tx, jobs...)
			must(t, err)
			must(t, tx.Commit())
		},
	} {
		t.Run(name, func(t *testing.T) {
			memory(t, func(t *testing.T, db *dbtest.DB) {
				var mu sync.Mutex
				calls, by := 0, map[string]int{}
				counted := db.Broken(t, &dbtest.Fault{Random: func() (before, after bool) { return false, false }, Stall: func(op string) {
					mu.Lock()
					defer mu.Unlock()
					calls++
					by[strings.Join(strings.Fields(op), " ")]++
				}})
				jobs := make([]Job, 400)
				for i := range jobs {
					jobs[i] = Job{Queue: fmt.Sprint("q", i%3), Kind: "x", Key: fmt.Sprint(i)}
				}
				enqueue(t, client(t, counted, Options{}), jobs)
				mu.Lock()
				defer mu.Unlock() // what callers in transactions need next is read after they have returned
				if calls > 100 {
					t.Errorf("%d jobs took %d statements", len(jobs), calls)
					for op, n := range by {
						t.Logf("%d %.150s", n, op)
					}
				}
			})
		})
	}
}
