//go:build unix

package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// addHerd adds functions that are due at the same moment.
func addHerd(t *testing.T, db *dbtest.DB, n int) (lane string) {
	t.Helper()
	addMany(t, db, n, "@every 1h", at(time.Hour))
	db.Do(t, `UPDATE {prefix}schedule SET kind = 'func', command = 'f'`, nil)
	db.Advance(t, time.Hour)
	return (&Schedule{Tag: "default", Kind: "func", Command: "f"}).lane()
}

// quick makes a lane one of functions that end at once, so that its runs are claimed ahead.
func quick(s *Scheduler, lane string) { s.noteTook(lane, time.Microsecond) }

// A claim that has locked as many rows as it may starts another one in parallel, before it
// commits, on engines that can skip locked rows.
func TestHerdIsClaimedSideBySide(t *testing.T) {
	clockedHaving(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		lane := addHerd(t, db, claimBatch+20)
		var locks, moves atomic.Int32
		second := make(chan struct{}) // closed when the second claim has locked its schedules
		hooked := around(t, db, func(_ context.Context, op string, call func() error) error {
			if strings.Contains(op, "new_due") && moves.Add(1) == 1 {
				select {
				case <-second:
				case <-time.After(unblocked()):
					t.Error("the second claim has not begun beside the first")
				}
			}
			err := call()
			if strings.Contains(op, "ORDER BY next_exec") && strings.Contains(op, "time_zone") && locks.Add(1) == 2 {
				close(second)
			}
			return err
		})
		s := daemon(t, hooked, Options{})
		handle(t, s, "f", func(context.Context, *Running) error { return nil })
		quick(s, lane)
		work(t, s) // MariaDB may lock more than it returns, so that the second claim gets nothing yet
		all := db.List(t, `SELECT state, COUNT(*) FROM {prefix}run GROUP BY state`, nil)
		if want := fmt.Sprint("ok ", claimBatch+20); len(all) != 1 || all[0] != want {
			t.Errorf("runs by state: %v, want %s", all, want)
		}
	})
}

// Several daemons claim a lane, each with several claims at once: each slot is executed once.
func TestHerdIsExecutedOnce(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		const n = 5*claimBatch + 7
		lane := addHerd(t, db, n)
		var mu sync.Mutex
		runs := map[string]int{}
		var each sync.WaitGroup
		for range 2 {
			s := daemon(t, again(t, db), Options{})
			handle(t, s, "f", func(_ context.Context, r *Running) error {
				mu.Lock()
				defer mu.Unlock()
				runs[r.Schedule]++
				return nil
			})
			quick(s, lane)
			each.Go(func() {
				if err := s.RunOnce(t.Context()); err != nil {
					t.Error(err)
				}
				if s.reserved != 0 || s.ahead != 0 {
					t.Errorf("%d reserved, %d claimed ahead, after all has ended", s.reserved, s.ahead)
				}
			})
		}
		each.Wait()
		for name, times := range runs {
			if times != 1 {
				t.Errorf("%s was executed %d times", name, times)
			}
		}
		all := db.List(t, `SELECT state, attempt, COUNT(*) FROM {prefix}run GROUP BY state, attempt`, nil)
		if want := fmt.Sprint("ok 1 ", n); len(runs) != n || len(all) != 1 || all[0] != want {
			t.Errorf("%d were executed; runs by state and attempt: %v, want %s", len(runs), all, want)
		}
	})
}

// While a lane is being claimed, outcomes wait for its end, but no longer than holdFor.
func TestOutcomesWaitForClaims(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, test := range []struct {
			limit   time.Duration
			release bool
		}{{time.Hour, true}, {time.Millisecond, false}} {
			add(t, db, "job", "@every 1h")
			db.Advance(t, time.Hour)
			s := daemon(t, db, Options{})
			s.finisher.holdFor = test.limit
			s.finisher.hold()
			e := one(t, claimed(t, s, 1))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				finished(t, s, e, 0)
			}()
			if test.release {
				eventually(t, "the outcome waits", func() bool {
					s.finisher.mu.Lock()
					defer s.finisher.mu.Unlock()
					return len(s.finisher.waiting) == 1
				})
				wantRows(t, db, "job", "3600 1 running")
				s.finisher.release()
			}
			<-ended
			wantRows(t, db, "job", "3600 1 ok")
			db.Do(t, `DELETE FROM {prefix}schedule`, nil)
			db.Do(t, `DELETE FROM {prefix}run`, nil)
			db.Advance(t, -time.Hour)
		}
	})
}
