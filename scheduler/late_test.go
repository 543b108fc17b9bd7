//go:build unix

package scheduler

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
)

// The class: a check before work begins that one kind of work has and the others lack. So this test goes
// through the list of kinds, and a new kind is part of it: work whose lease has ended while its daemon was
// stopped, or that was stopped before it began, does not begin, and another daemon does it instead, even
// if it is not repeatable.
func TestNothingBeginsWithoutItsLease(t *testing.T) {
	for _, why := range []string{"past", "stopped"} {
		t.Run(why, func(t *testing.T) {
			clocked(t, func(t *testing.T, db *dbtest.DB) {
				var calls atomic.Int32
				server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
				defer server.Close()
				file := filepath.Join(t.TempDir(), "log")
				db.Do(t, `CREATE TABLE effects (n INT)`, nil)
				command := map[string]string{
					"shell": "echo >>" + file, "argv": fmt.Sprintf(`["/bin/sh","-c","echo >>%s"]`, file),
					"http": "POST " + server.URL, "sql": "INSERT INTO effects (n) VALUES (1)", "func": "f",
				}
				begun := func() (all []int) {
					lines, _ := os.ReadFile(file)
					var rows int
					db.Scan(t, `SELECT COUNT(*) FROM effects`, nil, &rows)
					return []int{len(lines), int(calls.Load()), rows}
				}
				var want []string
				for _, kind := range kinds {
					if kind == "job" { // the claim's transaction enqueues it
						continue
					}
					want = append(want, kind)
					addJob(t, db, Schedule{Name: kind, Kind: kind, Command: command[kind], Policy: Policy{Unrepeatable: true}})
				}
				s := daemon(t, db, Options{})
				function := func(_ context.Context, run *Running) error {
					calls.Add(1)
					_, err := io.WriteString(run, "called")
					return err
				}
				handle(t, s, "f", function)
				db.Advance(t, time.Hour)
				for _, lane := range s.lanes() {
					runs, _, err := s.claim(t.Context(), lane, len(kinds))
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range hold(s, runs) {
						switch why {
						case "past":
							e.until = instant.Now()
						case "stopped":
							e.end()
						}
						ended(t, s, e, s.executeWhenFree(e))
					}
				}
				if got := begun(); !slices.Equal(got, []int{0, 0, 0}) {
					t.Errorf("work has begun without its lease: bytes, calls, rows: %v", got)
				}
				for _, kind := range want {
					if r := only(t, db, kind); r.State != "retry" {
						t.Errorf("%s: %s, %s; want it handed back", kind, r.State, r.Error)
					}
				}
				other := daemon(t, again(t, db), Options{})
				handle(t, other, "f", function)
				work(t, other)
				if got := begun(); !slices.Equal(got, []int{2, 2, 1}) {
					t.Errorf("bytes, calls, rows: %v; want each once", got)
				}
			})
		})
	}
}

// A run may wait for a place, or for what it needs to know, for longer than the first lease of its claim:
// the renewed one counts.
func TestARenewedLeaseCounts(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{})
		e := claimed(t, s, 1)[0]
		e.deadline = instant.Now()
		e.extend(later(time.Minute))
		ended(t, s, e, s.executeWhenFree(e))
		wantRows(t, db, "job", "3600 1 ok")
	})
}

// A task looks at the clock again in its own goroutine, which may have begun late.
func TestALateTaskDoesNotBegin(t *testing.T) {
	began := false
	work := start(instant.Now(), time.Hour, 100, func(context.Context, *guardian.Output) guardian.Result {
		began = true
		return guardian.Result{Cause: guardian.Exited}
	})
	if r := work.Wait(); began || r.Cause != guardian.NotStarted {
		t.Errorf("begun: %v, %+v", began, r)
	}
}
