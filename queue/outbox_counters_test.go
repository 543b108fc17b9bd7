package queue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// finished returns the counts of an hour.
func finished(t *testing.T, c *Client) (all []string) {
	t.Helper()
	list, err := adminOf(c).Finished(t.Context(), time.Hour)
	must(t, err)
	for _, f := range list {
		all = append(all, fmt.Sprintf("%s %s %d %d %d", f.Queue, f.Kind, f.Done, f.Failed, f.Dead))
		if f.Took < 0 || f.Took > time.Hour || f.Wait < 0 || f.Wait > time.Hour {
			t.Errorf("got %+v", f)
		}
	}
	return all
}

// What several workers have done adds up, by queue and kind, whatever became of it.
func TestCounts(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 2 })
		const n = 30
		for range n {
			for _, kind := range []string{"done", "discarded", "retried", "dead", "nobody"} {
				enqueue(t, c, Job{Kind: kind})
			}
			enqueue(t, c, Job{Queue: "other", Kind: "done", Delay: time.Millisecond})
		}
		var stops []func()
		for range 3 {
			w := worker(t, other(t, db), WorkerOptions{Queues: []string{defaultQueue, "other"}, BuryUnknown: true})
			w.slow = time.Millisecond
			handle(t, w, "done", func(context.Context, *Delivery) error { return nil })
			handle(t, w, "discarded", func(context.Context, *Delivery) error { return Discard(errTest) })
			handle(t, w, "retried", func(_ context.Context, d *Delivery) error {
				if d.Attempt == 1 {
					return errTest
				}
				return nil
			})
			handle(t, w, "dead", func(context.Context, *Delivery) error { return errTest })
			stops = append(stops, start(t, w))
		}
		empty(t, db)
		for _, stop := range stops {
			stop()
		}
		sum := fmt.Sprintf("default dead 0 %[1]d %[1]d, default discarded %[1]d 0 0, default done %[1]d 0 0, default nobody 0 0 %[1]d, default retried %[1]d %[1]d 0, other done %[1]d 0 0", n)
		if got := strings.Join(finished(t, c), ", "); got != sum {
			t.Errorf("got  %s\nwant %s", got, sum)
		}
		byQueue := map[string][3]int{}
		minutes, err := adminOf(c).FinishedByMinute(t.Context(), time.Hour)
		must(t, err)
		for _, m := range minutes {
			was := byQueue[m.Queue]
			byQueue[m.Queue] = [3]int{was[0] + m.Done, was[1] + m.Failed, was[2] + m.Dead}
			if m.Begins.Second() != 0 || m.Took < 0 {
				t.Errorf("got %+v", m)
			}
		}
		var lastDead time.Time
		for _, m := range minutes {
			if m.Dead > 0 && m.Begins.After(lastDead) {
				lastDead = m.Begins
			}
		}
		sums, err := adminOf(c).Finished(t.Context(), time.Hour)
		must(t, err)
		last := slices.MaxFunc(sums, func(a, b admin.Finished) int { return a.LastDead.Compare(b.LastDead) })
		if !last.LastDead.Equal(lastDead) || slices.ContainsFunc(sums, func(f admin.Finished) bool { return (f.Dead == 0) != f.LastDead.IsZero() }) {
			t.Errorf("the last one died at %v, want %v: %v", last.LastDead, lastDead, sums)
		}
		if byQueue["default"] != [3]int{3 * n, 2 * n, 2 * n} || byQueue["other"] != [3]int{n, 0, 0} {
			t.Errorf("by minute: %v", byQueue)
		}
		w := worker(t, c, WorkerOptions{})
		must(t, w.sweeper.sweep(t.Context()))
		if got := strings.Join(finished(t, c), ", "); got != sum {
			t.Errorf("after a sweep:\ngot  %s\nwant %s", got, sum)
		}
		byHand(t, db, `UPDATE {prefix}job_count SET minute = {now + -700000000000} WHERE kind = 'done'`)
		must(t, w.sweeper.sweep(t.Context()))
		wantRows(t, db, "kinds", `SELECT DISTINCT kind FROM {prefix}job_count ORDER BY kind`, "dead", "discarded", "nobody", "retried")
		for _, bad := range []time.Duration{0, -1, 8 * 24 * time.Hour} {
			_, err := adminOf(c).Finished(t.Context(), bad)
			want(t, fmt.Sprint(bad), err, ErrInvalid)
		}
	})
}

// Counts of more rows than a statement returns or reads are complete. One of a queue that is gone is left out.
func TestManyCounts(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		for _, name := range []string{"a", "b", "c"} {
			enqueue(t, c, Job{Queue: name, Kind: "x"})
		}
		const minutes, kinds = 40, 400 // several parts
		for i := range minutes {
			rows := make([]sqlrun.Args, kinds)
			for k := range rows {
				rows[k] = sqlrun.Args{"at": -int64(i) * time.Minute.Microseconds(), "kind": fmt.Sprint(i, " ", k), "queue": 1 + k%4}
			}
			db.Do(t, `INSERT INTO {prefix}job_count (minute, queue_id, kind, done) VALUES {values rows: ({now + :at}, :queue, :kind, 1)}`,
				sqlrun.Args{"rows": rows})
		}
		list, err := adminOf(c).Finished(t.Context(), time.Hour)
		must(t, err)
		kindsOf := map[string]bool{}
		for _, f := range list {
			kindsOf[f.Kind] = true
		}
		if want := minutes * kinds * 3 / 4; len(list) != want || len(kindsOf) != want {
			t.Errorf("got %d counts of %d kinds, not %d", len(list), len(kindsOf), want)
		}
		byMinute, err := adminOf(c).FinishedByMinute(t.Context(), time.Hour)
		must(t, err)
		lines := map[string]bool{}
		for _, m := range byMinute {
			lines[m.Begins.String()+m.Queue] = true
			if m.Done != kinds/4 {
				t.Errorf("got %+v", m)
			}
		}
		if len(byMinute) != 3*minutes || len(lines) != len(byMinute) {
			t.Errorf("got %d lines, %d of them different", len(byMinute), len(lines))
		}
	})
}

// A worker is stopped while what it has gathered is being written, by a goroutine that ends with it. That is written all the
// same: the counts of finished jobs, and the ends of groups.
func TestStopWhileSomethingIsWritten(t *testing.T) {
	for table, state := range map[string]string{
		"job_count": `SELECT CONCAT(kind, ' ', done) FROM {prefix}job_count`,
		"job_group": `SELECT CONCAT('x ', COUNT(*)) FROM {prefix}job_group WHERE state <> 'sealed'`,
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) { // where who writes keeps nobody else from it
				c := client(t, db, Options{})
				stalled, stopping, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
				var armed atomic.Bool
				once := sync.OnceFunc(func() {
					close(stalled)
					<-stopping
					select { // the stop waits for this, or should have
					case <-ended:
					case <-time.After(300 * time.Millisecond):
					}
				})
				broken := db.Broken(t, &dbtest.Fault{Call: -1, Stall: func(op string) {
					if armed.Load() && strings.Contains(op, table) && !strings.Contains(op, "DELETE") {
						once()
					}
				}})
				broken.Pool().SetMaxOpenConns(20)
				w := worker(t, client(t, broken, Options{}), WorkerOptions{})
				handle(t, w, "x", func(context.Context, *Delivery) error { armed.Store(true); return nil })
				id, err := c.NewGroup(t.Context(), Group{})
				must(t, err)
				enqueue(t, c, Job{Kind: "x", Group: id})
				must(t, c.Seal(t.Context(), id))
				stop := start(t, w)
				received(t, "it is written", stalled)
				close(stopping)
				go func() {
					defer close(ended)
					eventually(t, "its goroutines end", func() bool {
						w.mu.Lock()
						defer w.mu.Unlock()
						return w.stopped
					})
				}()
				stop()
				if got := db.List(t, state, nil); !slices.Equal(got, []string{"x 1"}) {
					t.Errorf("there is %q", got)
				}
			}, (*testing.T).Parallel)
		})
	}
}

// What could not be written is added later.
func TestCountsWithoutADatabase(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		enqueue(t, client(t, db, Options{}), Job{Kind: "x"})
		c, cut := severed(t, db)
		w := worker(t, c, WorkerOptions{})
		key := countKey{28_000_000, 1, "x"}
		w.tally.counts[key] = &count{done: 2, waited: 5}
		must(t, w.tally.addCounts(t.Context()))
		w.tally.counts[key] = &count{done: 3, ran: 7}
		cut()
		if err := w.tally.addCounts(t.Context()); err == nil || w.tally.counts[key] == nil {
			t.Fatalf("kept are %v, %v", w.tally.counts, err)
		}
		w.tally.counts[key].add(&count{failed: 1})
		w.tally.keepCounts(map[countKey]*count{key: {dead: 4}})
		c.db = db.DB
		must(t, w.tally.addCounts(t.Context()))
		wantRows(t, db, "counts", `SELECT queue_id, kind, done, failed, dead, wait_us, run_us FROM {prefix}job_count`, "1 x 5 1 4 5 7")
		if len(w.tally.counts) != 0 {
			t.Errorf("kept are %v", w.tally.counts)
		}
	})
}

// Each job that is done is logged, at its queue's level.
func TestLogDone(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		var said lockedText
		c := client(t, db, Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		enqueue(t, c, Job{Kind: "x"})
		id := enqueue(t, c, Job{Queue: "loud", Kind: "x"})
		w := worker(t, c, WorkerOptions{Queues: []string{defaultQueue, "loud"}, LogDone: map[string]slog.Level{"loud": slog.LevelInfo}})
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		must(t, w.RunOnce(t.Context()))
		text := said.String()
		if want := fmt.Sprintf(`msg="job done" queue=loud kind=x id=%d attempt=1 discarded=false waited=`,
			id); strings.Count(text, "job done") != 1 || !strings.Contains(text, want) {
			t.Errorf("it said %s", text)
		}
	})
}

// A lockedText is written to by several goroutines.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
