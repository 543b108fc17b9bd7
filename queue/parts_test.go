package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// packets has one test at a time set what is the whole server's.
var packets sync.Mutex

// packetOf limits the size of statements on connections opened from now on, if the server has
// such a limit, and returns such connections.
func packetOf(t *testing.T, db *dbtest.DB, most int) *dbtest.DB {
	t.Helper()
	if db.Dialect.MaxPacket == "" {
		return db
	}
	dbtest.SkipGated(t, "its own connections keep the setting that they began with")
	packets.Lock()
	defer packets.Unlock()
	var was int
	db.Scan(t, db.Dialect.MaxPacket, nil, &was)
	db.Do(t, fmt.Sprintf("SET GLOBAL max_allowed_packet = %d", most), nil)
	own := db.Another(t, dialect.Options{})
	var is int
	own.Scan(t, db.Dialect.MaxPacket, nil, &is)
	if _, err := db.Exec(context.Background(), sqlrun.Unlisted(fmt.Sprintf("SET GLOBAL max_allowed_packet = %d", was)),
		nil); err != nil || is != most {
		t.Fatalf("%d, %v", is, err)
	}
	own.Pool().SetMaxIdleConns(10)
	return own
}

// TestLongResultsOfManyJobs notes the ends of jobs of a group that have more in their results
// together than the server takes in a statement, and reads them a few at a time.
func TestLongResultsOfManyJobs(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		const n = 12
		db = packetOf(t, db, 16<<20)
		c := client(t, db, Options{})
		jobs := make([]Job, n)
		for i := range jobs {
			jobs[i] = Job{Kind: "x"}
		}
		group, ids, err := c.EnqueueGroup(t.Context(), Group{}, jobs...)
		must(t, err)
		result := `"` + strings.Repeat(`\"`, jobfield.LongestResult/2-1) + `"` // each of which takes eight bytes in a statement
		members := make([]store.Ended, n)
		for i, id := range ids {
			members[i] = store.Ended{ID: id.ID, Group: group, State: store.MemberDone, Result: []byte(result)}
		}
		// Not ShortTx: a slow machine may take longer than that may be idle to write the statement.
		must(t, c.db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error { return store.Finish(ctx, tx, members) }))
		seen := 0
		for after, more := int64(0), true; more; {
			var part []Result
			part, more, err = c.ResultsAfter(t.Context(), group, after, 1000)
			must(t, err)
			if len(part) != 1 {
				t.Fatalf("%d results at once", len(part))
			}
			if after = part[0].Job; part[0].State != string(store.MemberDone) || string(part[0].Result) != result {
				t.Errorf("job %d: %s, with %d bytes", after, part[0].State, len(part[0].Result))
			}
			seen++
		}
		if seen != n {
			t.Errorf("%d results", seen)
		}
	})
}

// TestLongErrorsOfManyJobs ends jobs together that have more in their errors and the details of
// these than the server takes in a statement.
func TestLongErrorsOfManyJobs(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		const n = 400
		w, b := idleWorker(t, packetOf(t, db, 16<<20))
		enqueueMany(t, w.c, slices.Repeat([]Job{{Kind: "x"}}, n))
		var moves []*move
		for len(moves) < n {
			flushOnce(t, w, b, func() {})
			w.mu.Lock()
			for d := w.popReady(); d != nil; d = w.popReady() {
				moves = append(moves, w.moveFor(d, buried, 0, errTest, strings.Repeat("\n\"", 16000)))
			}
			w.mu.Unlock()
		}
		eventually(t, "they are written", func() bool {
			err := w.flush.commitMoves(t.Context(), b, w.lease.node, moves)
			if err != nil && !db.Dialect.Unavailable(err) { // a machine that stops for five seconds loses its transaction
				t.Fatal(err)
			}
			return err == nil
		})
		wantRows(t, db, "dead jobs, and the bytes of their details",
			`SELECT COUNT(*), MIN(LENGTH(detail)), MAX(LENGTH(detail)) FROM {prefix}job_dead`, "400 32000 32000")
	})
}

// TestEndsOfManyLargeJobs makes jobs fail together whose payloads and errors exceed what the
// server accepts in one statement: they are retried, and then kept as dead or done; dead ones
// are retried by hand.
func TestEndsOfManyLargeJobs(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		const n = 40
		db = packetOf(t, db, 16<<20)
		c := client(t, db, Options{Blocks: 1})
		jobs := make([]Job, n)
		for i := range jobs {
			jobs[i] = Job{Kind: []string{"fails", "recovers"}[i%2], Payload: fmt.Appendf(nil, `"%s"`, strings.Repeat("x", 1<<20-2))}
		}
		enqueueMany(t, c, jobs)
		edit(t, c, func(q *admin.Queue) { q.MaxAttempts, q.RetryDelay, q.KeepDone = 2, time.Millisecond, time.Hour })
		w := worker(t, c, WorkerOptions{Concurrency: n, ReadAhead: 2 * n << 20})
		var begun atomic.Int32
		all := make(chan struct{})
		var repaired atomic.Bool
		work := func(ctx context.Context, d *Delivery) error {
			if d.Attempt == 1 && begun.Add(1) == n {
				close(all)
			}
			if d.Attempt == 1 && !repaired.Load() {
				select {
				case <-all:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if !repaired.Load() && (d.Attempt == 1 || d.Kind == "fails") {
				return errors.New(strings.Repeat("\n\"", 2000))
			}
			return nil
		}
		must(t, w.HandleOthers(work))
		start(t, w)
		count := func(state admin.State, want int) {
			t.Helper()
			eventually(t, fmt.Sprintf("%d jobs that are %s", want, state), func() bool {
				found, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{State: state, Limit: 1000, LongestPayload: 1})
				must(t, err)
				for _, i := range found {
					if i.PayloadBytes != 1<<20 {
						t.Fatalf("job %d has %d bytes", i.ID, i.PayloadBytes)
					}
				}
				return len(found) == want
			})
		}
		count(admin.StateDead, n/2)
		count(admin.StateDone, n/2)
		repaired.Store(true)
		if r, err := adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{}, admin.BulkOptions{}); err != nil || r.Done != n/2 {
			t.Errorf("%+v, %v", r, err)
		}
		count(admin.StateDone, n)
	})
}
