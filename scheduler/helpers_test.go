package scheduler

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// childURL in the environment of this program makes it a daemon on that
// database, for the tests that kill one.
const childURL = "SCHEDULER_TEST_DAEMON"

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		if err := childDaemon(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	// A database is slower than memory, and most of the time is spent waiting for it. The seed
	// is printed; files of failures would be committed by mistake.
	for name, value := range map[string]string{"rapid.checks": "20", "rapid.steps": "40", "rapid.nofailfile": "true", "test.parallel": "6"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			_ = f.Value.Set(value)
		}
	}
	dbtest.MutantsMain(m, forProgram())
	os.Exit(m.Run())
}

// childLease exceeds the time that a slow machine takes to kill the child after it has begun.
const childLease = 6 * time.Second

func childDaemon(url string) error {
	db, err := engines.Open(context.Background(), url, dialect.Options{})
	if err != nil {
		return err
	}
	s, err := New(db, Options{Node: "child", Lease: childLease, Logger: quiet()})
	if err != nil {
		return err
	}
	return s.Run(context.Background())
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// daemon returns a scheduler as a daemon of its own would be: with its own name.
func daemon(t *testing.T, db *dbtest.DB, opt Options) *Scheduler {
	t.Helper()
	opt.Logger = cmp.Or(opt.Logger, quiet())
	s, err := New(db.DB, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// each is dbtest.Each, and clocked is dbtest.EachClock, beside other tests: most
// of the time is spent waiting for the engines.
func each(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, f, (*testing.T).Parallel)
}

func clocked(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.EachClock(t, f, (*testing.T).Parallel)
}

// having and clockedHaving are each and clocked on the engines that have something: see dbtest.With.
func having(t *testing.T, has dbtest.With, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	has.Each(t, f, (*testing.T).Parallel)
}

func clockedHaving(t *testing.T, has dbtest.With, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	has.EachClock(t, f, (*testing.T).Parallel)
}

// memory is each on the engines for what happens in memory: see dbtest.Memory.
func memory(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Memory.Each(t, f, (*testing.T).Parallel)
}

// clockedMemory is clocked on the engines for what happens in memory: see dbtest.Memory.
func clockedMemory(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Memory.EachClock(t, f, (*testing.T).Parallel)
}

// clockedDialects is clocked on the engines for what depends on the shape of statements: see dbtest.Dialects.
func clockedDialects(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Dialects.EachClock(t, f, (*testing.T).Parallel)
}

// again connects to a test's database a second time, with the same clock.
func again(t *testing.T, db *dbtest.DB) *dbtest.DB {
	t.Helper()
	other := dbtest.Open(t, db.URL, dialect.Options{})
	other.DB = other.WithNow(db.Dialect.Now)
	return other
}

// add stores a schedule with a command that succeeds.
func add(t *testing.T, db *dbtest.DB, name, spec string) {
	t.Helper()
	addCommand(t, db, name, spec, "echo "+name)
}

func addCommand(t *testing.T, db *dbtest.DB, name, spec, command string) {
	t.Helper()
	if err := Add(t.Context(), db.DB, Schedule{Name: name, Spec: spec, Command: command}); err != nil {
		t.Fatal(err)
	}
}

// addMany inserts n active schedules, as a person would, with one spec and
// their first slot at first.
func addMany(t *testing.T, db *dbtest.DB, n int, spec string, first time.Time) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		var rows []sqlrun.Args
		for i := from; i < min(n, from+1000); i++ {
			rows = append(rows, sqlrun.Args{"name": fmt.Sprintf("s%05d", i)})
		}
		db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command, due_at, next_exec)
			VALUES {values rows: (:name, :spec, 'true', {time :due}, {time :due})}`,
			sqlrun.Args{"rows": rows, "spec": spec, "due": first.UnixMicro()})
	}
}

// at is a moment after the start of a stopped clock.
func at(d time.Duration) time.Time { return dbtest.Start.Add(d) }

// hold makes runs this daemon's, as start does, without running anything.
func hold(s *Scheduler, runs []run) []*execution {
	var held []*execution
	for _, r := range runs {
		e := newExecution(r)
		s.mu.Lock()
		s.running[r.id] = e
		s.mu.Unlock()
		held = append(held, e)
	}
	return held
}

// renewAll renews all leases, as keep does.
func renewAll(t *testing.T, s *Scheduler) error {
	t.Helper()
	left, err := s.renew(t.Context(), s.held())
	return cmp.Or(err, heldOf(left))
}

// finished records that the command of a run has ended with an exit code.
func finished(t *testing.T, s *Scheduler, e *execution, code int) {
	t.Helper()
	ended(t, s, e, guardian.Result{Cause: guardian.Exited, ExitCode: code})
}

func ended(t *testing.T, s *Scheduler, e *execution, r guardian.Result) {
	t.Helper()
	s.record(t.Context(), e, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, e.id)
}

// claimed claims, and fails the test if the claim fails.
func claimed(t *testing.T, s *Scheduler, limit int) []*execution {
	t.Helper()
	runs, _, err := s.claim(t.Context(), "default", limit)
	if err != nil {
		t.Fatal(err)
	}
	return hold(s, runs)
}

// takenOver takes over, and fails the test if that fails.
func takenOver(t *testing.T, s *Scheduler, limit int) []*execution {
	t.Helper()
	runs, _, err := s.takeOver(t.Context(), "default", limit)
	if err != nil {
		t.Fatal(err)
	}
	return hold(s, runs)
}

// settle lets one daemon do all that there is to do, until all that has begun
// has ended well. What a connection that was cut holds locked, it waits for.
func settle(t *testing.T, s *Scheduler) {
	t.Helper()
	eventually(t, "nothing is due", func() bool {
		for range 1000 {
			if _, err := s.planNew(t.Context(), "default"); err != nil {
				t.Fatal(err)
			}
			taken, ended, err := s.takeOver(t.Context(), "default", batch)
			if err != nil {
				t.Fatal(err)
			}
			runs, moved, err := s.claim(t.Context(), "default", batch)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range hold(s, append(taken, runs...)) {
				finished(t, s, e, 0)
			}
			if ended+moved == 0 {
				break
			}
		}
		found, err := s.probe(t.Context(), []string{"default"})
		if err != nil {
			t.Fatal(err)
		}
		l := found[0]
		return l.unplanned == 0 && (!l.schedules.Valid || l.schedules.Int64 > l.now) && (!l.runs.Valid || l.runs.Int64 > l.now)
	})
}

// rows lists the runs of a schedule, or of all, oldest slot first: slot,
// attempt, state, and for a range its end and the number of its slots; times
// in seconds after the start of a stopped clock.
func rows(t *testing.T, db *dbtest.DB, name string) []string {
	t.Helper()
	var lines []string
	for _, r := range allRuns(t, db, name) {
		line := fmt.Sprintf("%s %d %s", seconds(r.Due), r.Attempt, r.State)
		if !r.To.IsZero() {
			line += fmt.Sprintf(" to %s: %d", seconds(r.To), r.Slots)
		}
		if name == "" {
			line = r.Schedule + " " + line
		}
		lines = append(lines, line)
	}
	return lines
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(t.Sub(dbtest.Start).Seconds(), 'f', -1, 64)
}

func allRuns(t *testing.T, db *dbtest.DB, name string) []Run {
	t.Helper()
	all, err := History(t.Context(), db.DB, name, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b Run) int {
		return cmp.Or(strings.Compare(a.Schedule, b.Schedule), a.Due.Compare(b.Due), a.Attempt-b.Attempt)
	})
	return all
}

func wantRows(t *testing.T, db *dbtest.DB, name string, want ...string) {
	t.Helper()
	if got := rows(t, db, name); !slices.Equal(got, want) {
		t.Errorf("runs of %q:\n got %q\nwant %q", name, got, want)
	}
}

func stored(t *testing.T, db *dbtest.DB, name string) Schedule {
	t.Helper()
	s, err := Get(t.Context(), db.DB, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// longWait is for what must happen, on a slow machine.
const longWait = 5 * time.Minute

// Short names of dbtest's.
var must, eventually, quiet = dbtest.Must, dbtest.Eventually, dbtest.Quiet

// A life is a time in which a schedule had one plan: its slots are first,
// first+every, and so on, before end.
type life struct {
	name       string
	first, end time.Time
	every      time.Duration
}

// account checks that each slot of all lives is covered exactly once: by a
// chain of attempts of which all but the last were lost, or by one range of
// slots that did not run. It returns how many slots there were, by final state.
func account(t interface {
	Helper()
	Errorf(string, ...any)
}, all []Run, lives []life,
) map[string]int64 {
	t.Helper()
	expected := map[string]map[int64]int{} // by name and slot: how often covered
	for _, l := range lives {
		if expected[l.name] == nil {
			expected[l.name] = map[int64]int{}
		}
		for slot := l.first; slot.Before(l.end); slot = slot.Add(l.every) {
			expected[l.name][slot.UnixMicro()] = 0
		}
	}
	states := map[string]int64{}
	for i, r := range all { // by name, slot and attempt
		slots, due := expected[r.Schedule], r.Due.UnixMicro()
		if r.State == "skipped" || r.State == "missed" {
			n := int64(0)
			for slot := range slots {
				if slot >= due && slot <= r.To.UnixMicro() {
					slots[slot]++
					n++
				}
			}
			_, begins := slots[due]
			_, ends := slots[r.To.UnixMicro()]
			if n != r.Slots || !begins || !ends || r.Attempt != 1 {
				t.Errorf("%s: range %v to %v, attempt %d: says %d slots, and has %d", r.Schedule, r.Due, r.To, r.Attempt, r.Slots, n)
			}
			states[r.State] += r.Slots
			continue
		}
		first := i == 0 || all[i-1].Schedule != r.Schedule || !all[i-1].Due.Equal(r.Due)
		last := i == len(all)-1 || all[i+1].Schedule != r.Schedule || !all[i+1].Due.Equal(r.Due)
		switch {
		case first && r.Attempt != 1, !first && r.Attempt != all[i-1].Attempt+1:
			t.Errorf("%s %v: attempt %d out of order", r.Schedule, r.Due, r.Attempt)
		case !last && r.State != "lost" && r.State != "retry":
			t.Errorf("%s %v: attempt %d is %s, and there is another", r.Schedule, r.Due, r.Attempt, r.State)
		case last:
			states[r.State]++
			if _, known := slots[due]; !known {
				t.Errorf("%s %v: a run at no slot", r.Schedule, r.Due)
			}
			slots[due]++
		}
	}
	for name, slots := range expected {
		for slot, n := range slots {
			if n != 1 {
				t.Errorf("%s: slot %v is covered %d times", name, instantOf(slot), n)
			}
		}
	}
	return states
}
