package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/dbcron/dbcron/scheduler"
)

// A tally counts the outcomes of a chaos test's slots.
type tally struct {
	slots                int64
	states               map[string]int64
	begun                int // commands
	holes                int // slots without an outcome
	duplicates, overlaps int
	left                 int // runs still open at the end

	afterLease, afterKill []time.Duration // how long each interrupted run took to start again
}

// A book is the history of a schedule.
type book struct {
	*given
	scheduler.Schedule
	runs  []scheduler.Run // ordered by slot and attempt
	slots [][]scheduler.Run
}

// account checks the tables against what commands, statements and requests recorded, and fails
// the test unless everything adds up.
func (c *chaos) account() *tally {
	t := c.t
	sum := &tally{states: map[string]int64{}}
	books, byID := c.books(sum)
	problems := 0
	wrong := func(name string, err error) {
		if problems++; problems <= 20 {
			t.Errorf("%s: %v%s", name, err, books[name].text())
		}
	}
	for name, b := range books {
		for _, check := range []func(*tally) error{b.covered, b.tried, b.inOrder, b.allowed} {
			if err := check(sum); err != nil {
				wrong(name, err)
			}
		}
		if err := b.followed(books); err != nil {
			wrong(name, err)
		}
	}
	for _, check := range []func(map[string]*book, map[int64]scheduler.Run, *tally) error{c.began, c.effects, c.requested, c.promised} {
		if err := check(books, byID, sum); err != nil {
			wrong("chaos", err)
		}
	}
	for _, words := range c.lines("overlap") {
		sum.overlaps++
		wrong(words[0], fmt.Errorf("run %s overlaps another one", words[1]))
	}
	c.takeovers(byID, sum)
	if sum.slots == 0 || sum.states["ok"] == 0 || sum.states["lost"] == 0 {
		t.Error("the test shows nothing")
	}
	if problems > 0 {
		t.Errorf("%d problems", problems)
	}
	return sum
}

// books reads the history of every schedule.
func (c *chaos) books(sum *tally) (map[string]*book, map[int64]scheduler.Run) {
	t := c.t
	books, byID := map[string]*book{}, map[int64]scheduler.Run{}
	stored, err := scheduler.List(t.Context(), c.db.DB, "", 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stored {
		books[s.Name] = &book{Schedule: s}
	}
	for _, g := range c.schedules {
		if books[g.Name] == nil {
			t.Fatalf("%s is gone", g.Name)
		}
		books[g.Name].given = g
	}
	if len(stored) != len(c.schedules) {
		t.Errorf("there are %d schedules, want %d", len(stored), len(c.schedules))
	}
	all, err := scheduler.History(t.Context(), c.db.DB, "", 10_000_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range all {
		b := books[run.Schedule]
		if b == nil {
			t.Fatalf("%s has a run, and does not exist", run.Schedule)
		}
		b.runs = append(b.runs, run)
		byID[run.ID] = run
		sum.states[run.State] += max(1, run.Slots)
		if !run.Next.IsZero() {
			sum.left++
		}
	}
	for _, b := range books {
		slices.SortFunc(b.runs, func(x, y scheduler.Run) int {
			if order := x.Due.Compare(y.Due); order != 0 {
				return order
			}
			return x.Attempt - y.Attempt
		})
		for i, run := range b.runs {
			if i > 0 && run.Due.Equal(b.runs[i-1].Due) {
				last := len(b.slots) - 1
				b.slots[last] = append(b.slots[last], run)
				continue
			}
			b.slots = append(b.slots, []scheduler.Run{run})
		}
	}
	return books, byID
}

// text formats the end of a schedule's history for an error message.
func (b *book) text() string {
	if b == nil {
		return ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s, tag %s, %s, next %v", b.Spec, b.Tag, b.State, b.Due)
	for _, r := range b.runs[max(0, len(b.runs)-20):] {
		fmt.Fprintf(&text, "\n  %d: %s %v to %s (%d), attempt %d, %s, fence %d, from %s to %s, exit code %d, %s", r.ID, r.Cause,
			r.Due.Format(instants), r.To.Format(instants), r.Slots, r.Attempt, r.State, r.Fence,
			r.Started.Format(instants), r.Finished.Format(instants), r.ExitCode, r.Error)
	}
	return text.String()
}

const instants = "15:04:05.000"

func passed(state string) bool { return state == "skipped" || state == "missed" }

// covered checks that the slots have no gaps from the first one to the next one due: each
// belongs to a run or to a stretch of slots that did not run.
func (b *book) covered(sum *tally) error {
	plan, err := b.Slots()
	if err != nil {
		return err
	}
	next, errs := b.first, []error(nil)
	slots := b.slots
	if b.pruned {
		slots = b.newest()
		next = time.Time{}
	}
	for _, runs := range slots {
		run := runs[0]
		if run.Cause == "hand" || run.Cause != "slot" && !run.Due.Equal(next) {
			continue // not in the sequence of slots, or part of a stretch already counted
		}
		if !next.IsZero() && !run.Due.Equal(next) && !b.resumedAt(next, run.Due) {
			n := 1
			if run.Due.After(next) {
				n += plan.Count(next, run.Due.Add(-time.Second), 10_000)
			}
			sum.holes += n
			errs = append(errs, fmt.Errorf("slot %v should come, and %v comes: %d have no outcome", next, run.Due, n))
		}
		last, n := run.Due, int64(1)
		if passed(run.State) {
			last, n = run.To, 1+int64(plan.Count(run.Due, run.To, 1_000_000))
			if n != run.Slots && !b.paused { // a pause may have restarted the count of @every within the stretch
				errs = append(errs, fmt.Errorf("the stretch from %v to %v has %d slots, and says %d", run.Due, run.To, n, run.Slots))
			}
		}
		sum.slots += n
		next, _ = plan.Next(last)
	}
	switch {
	case next.IsZero():
	case b.State == "ended":
		if !next.After(b.Ends) {
			errs = append(errs, fmt.Errorf("it has ended, and slot %v has no outcome", next))
		}
	case !next.Equal(b.Due) && !b.resumedAt(next, b.Due):
		sum.holes++
		errs = append(errs, fmt.Errorf("slot %v should be next, and %v is", next, b.Due))
	}
	return errors.Join(errs...)
}

// newest returns the slots that a pruned history must still hold.
func (b *book) newest() [][]scheduler.Run {
	if len(b.runs) <= b.KeepRuns {
		return b.slots
	}
	oldest := b.runs[len(b.runs)-1-b.KeepRuns].Due
	i := slices.IndexFunc(b.slots, func(runs []scheduler.Run) bool { return !runs[0].Due.Before(oldest) })
	return b.slots[i:]
}

// resumedAt reports whether slot replaced instead because the schedule was resumed. @every counts
// from the resumption. Several resumptions may each come before the next slot.
func (b *book) resumedAt(instead, slot time.Time) bool {
	const planned = 10 * time.Second // upper bound of the delay before the resumption is planned
	every, err := time.ParseDuration(strings.TrimPrefix(b.Spec, "@every "))
	if err != nil {
		return false
	}
	for _, at := range b.resumed {
		if !at.After(instead) {
			instead = later(instead, at.Add(planned+every))
		}
	}
	return !instead.Before(slot)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// tried checks the attempts at each slot: they are numbered without gaps, another attempt follows
// only a run that was cut off or may be repeated, and the last attempt has ended.
func (b *book) tried(sum *tally) error {
	var errs []error
	for _, runs := range b.slots {
		failures := 0
		for i, run := range runs {
			if run.Attempt != i+1 && (i > 0 || !b.pruned) {
				if i > 0 && run.Attempt == runs[i-1].Attempt {
					sum.duplicates++
				}
				errs = append(errs, fmt.Errorf("%v: attempt %d comes in place %d", run.Due, run.Attempt, i+1))
				break
			}
			if i+1 == len(runs) {
				if problem := b.last(run); problem != "" {
					errs = append(errs, fmt.Errorf("%v: attempt %d is the last, and %s (%s): %s", run.Due, run.Attempt, run.State, run.Error, problem))
				}
				break
			}
			if run.State == "failed" || run.State == "timeout" {
				failures++
			}
			if problem := b.repeated(run, runs[i+1], failures); problem != "" {
				errs = append(errs, fmt.Errorf("%v: attempt %d is %s (%s), and there is another: %s", run.Due, run.Attempt,
					run.State, run.Error, problem))
			}
		}
	}
	return errors.Join(errs...)
}

// last reports what is wrong with the last attempt at a slot.
func (b *book) last(run scheduler.Run) string {
	switch run.State {
	case "ok", "failed", "timeout", "cancelled", "skipped", "missed":
		return ""
	case "lost":
		if b.paused || b.State != "active" {
			return ""
		}
		return "nobody has taken it over"
	}
	return "it has not ended"
}

// repeated reports why next must not follow run.
func (b *book) repeated(run, next scheduler.Run, failures int) string {
	switch {
	case run.State == "lost", run.State == "retry":
		return ""
	case next.Cause == "backfill" && run.State != "ok":
		return ""
	case run.State != "failed" && run.State != "timeout":
		return "this is no reason"
	case failures >= b.MaxAttempts:
		return fmt.Sprintf("max_attempts is %d", b.MaxAttempts)
	case (b.Kind == "shell" || b.Kind == "argv") && (run.ExitCode == 126 || run.ExitCode == 127):
		return "that exit code is final"
	}
	return ""
}

// inOrder checks the fences: no two runs share one, and where overlap is forbidden a run ends
// before the run with the next fence starts.
func (b *book) inOrder(sum *tally) error {
	var errs []error
	runs := slices.DeleteFunc(slices.Clone(b.runs), func(r scheduler.Run) bool { return r.Fence == 0 })
	slices.SortFunc(runs, func(x, y scheduler.Run) int { return int(x.Fence - y.Fence) })
	for i := 1; i < len(runs); i++ {
		before, run := runs[i-1], runs[i]
		if before.Fence == run.Fence {
			sum.duplicates++
			errs = append(errs, fmt.Errorf("runs %d and %d have the same fence, %d", before.ID, run.ID, run.Fence))
		}
		if b.Overlap != "allow" && run.Started.Before(before.Finished) {
			sum.overlaps++
			errs = append(errs, fmt.Errorf("run %d began at %v, and run %d ended at %v", run.ID, run.Started, before.ID, before.Finished))
		}
	}
	return errors.Join(errs...)
}

// allowed checks each run's outcome against the schedule's policies and its work.
func (b *book) allowed(*tally) error {
	var errs []error
	for _, runs := range b.slots {
		lost := 0
		for _, run := range runs {
			if problem := b.mustNot(run, lost); problem != "" {
				errs = append(errs, fmt.Errorf("%v: attempt %d is %s (%s): %s", run.Due, run.Attempt, run.State, run.Error, problem))
			}
			if run.State == "lost" {
				lost++
			}
		}
	}
	return errors.Join(errs...)
}

// crashes is the daemon's limit of lost attempts at one slot.
const crashes = 3

// mustNot says why a run must not have its outcome, given the number of lost attempts at its slot.
func (b *book) mustNot(run scheduler.Run, lost int) string {
	switch run.State {
	case "ok":
		if b.bad {
			return "it cannot be"
		}
	case "failed":
		if b.good && lost < crashes-1 {
			return "its work never fails"
		}
	case "timeout":
		if b.Timeout == 0 {
			return "it has no timeout"
		}
	case "missed":
		if b.Missed == "all" {
			return "all slots are to be run"
		}
	case "skipped":
		inactive := run.Error == "the schedule was not active" && b.paused
		if !inactive && b.Overlap != "forbid" && !strings.HasPrefix(run.Error, "100 runs") {
			return "its policy is " + b.Overlap
		}
	case "cancelled":
		switch wish := cmp.Or(run.Cancel, run.Error); {
		case wish == cancelledBy, strings.HasPrefix(wish, cancelledBy+";"):
		case strings.Contains(wish, "replaced by the next slot") && b.Overlap == "replace":
		case run.Error == "the schedule is failed" && b.State == "failed": // it was waiting for its turn
		case run.Error == "the schedule is paused" && b.paused: // the same
		case strings.HasSuffix(run.Error, " meanwhile") && (b.paused || b.State != "active"):
		default:
			return "nobody has asked for that"
		}
	}
	return ""
}

// followed checks that each slot which triggers another schedule has a run there.
func (b *book) followed(books map[string]*book) error {
	var errs []error
	for _, runs := range b.slots {
		name, last := "", runs[len(runs)-1]
		switch last.State {
		case "ok":
			name = b.OnSuccess
		case "failed", "timeout":
			name = b.OnFailure
		}
		if name != "" && !slices.ContainsFunc(books[name].runs, func(r scheduler.Run) bool { return r.Due.Equal(last.Due) }) {
			errs = append(errs, fmt.Errorf("%v is %s, and %s has not followed", last.Due, last.State, name))
		}
	}
	return errors.Join(errs...)
}

// began checks the records that commands write when they start. Each command starts at most once,
// every successful one started, and where overlap is forbidden the fences rise.
func (c *chaos) began(books map[string]*book, byID map[int64]scheduler.Run, sum *tally) error {
	var errs []error
	seen, fences := map[int64]bool{}, map[string]int64{}
	for _, words := range c.lines("begun") {
		name := words[0]
		id, _ := strconv.ParseInt(words[1], 10, 64)
		fence, _ := strconv.ParseInt(words[2], 10, 64)
		sum.begun++
		if seen[id] {
			sum.duplicates++
			errs = append(errs, fmt.Errorf("%s: run %d was begun twice", name, id))
		}
		seen[id] = true
		b := books[name]
		if run, ok := byID[id]; !ok && !b.pruned || ok && (run.Schedule != name || run.Fence != fence) {
			errs = append(errs, fmt.Errorf("%s: run %d had fence %d, and the history says %v", name, id, fence, run))
		}
		if b.Overlap != "allow" && fence <= fences[name] {
			errs = append(errs, fmt.Errorf("%s: fence %d was begun after %d", name, fence, fences[name]))
		}
		fences[name] = fence
	}
	for id, run := range byID {
		kind := books[run.Schedule].Kind
		if run.State == "ok" && (kind == "shell" || kind == "argv") && !seen[id] {
			errs = append(errs, fmt.Errorf("%s: run %d is ok, and was not begun", run.Schedule, id))
		}
	}
	return errors.Join(errs...)
}

// effects checks that each statement took effect exactly once per successful run.
func (c *chaos) effects(books map[string]*book, _ map[int64]scheduler.Run, sum *tally) error {
	had := map[string]int{}
	for _, line := range c.db.List(c.t, `SELECT schedule, COUNT(*) FROM effect GROUP BY schedule`, nil) {
		name, n, _ := strings.Cut(line, " ")
		had[name], _ = strconv.Atoi(n)
	}
	var errs []error
	for name, b := range books {
		ok := 0
		for _, run := range b.runs {
			if run.State == "ok" {
				ok++
			}
		}
		if b.Kind == "sql" && had[name] != ok {
			sum.duplicates += max(0, had[name]-ok)
			errs = append(errs, fmt.Errorf("%s: %d runs are ok, and the statement had its effect %d times", name, ok, had[name]))
		}
	}
	return errors.Join(errs...)
}

// requested checks the received requests: each attempt arrived at most once, and every successful
// one arrived.
func (c *chaos) requested(books map[string]*book, _ map[int64]scheduler.Run, sum *tally) error {
	var errs []error
	known := map[string]bool{}
	for name, b := range books {
		for _, run := range b.runs {
			key := strconv.Quote(fmt.Sprintf("%s/%d", name, run.Due.UnixMicro()))
			known[key] = true
			if b.Kind == "http" && run.State == "ok" && !slices.Contains(c.requests[key], strconv.Itoa(run.Attempt)) {
				errs = append(errs, fmt.Errorf("%s: run %d is ok, and there was no request", name, run.ID))
			}
		}
	}
	for key, attempts := range c.requests {
		if !known[key] {
			errs = append(errs, fmt.Errorf("%s was requested, and there is no such run", key))
		}
		slices.Sort(attempts)
		if twice := len(attempts) - len(slices.Compact(slices.Clone(attempts))); twice > 0 {
			sum.duplicates += twice
			errs = append(errs, fmt.Errorf("%s was requested by attempts %v", key, attempts))
		}
	}
	return errors.Join(errs...)
}

// promised checks that runs started by hand have run or were cancelled.
func (c *chaos) promised(books map[string]*book, _ map[int64]scheduler.Run, _ *tally) error {
	var errs []error
	for _, run := range c.byHand {
		if b := books[run.Schedule]; !b.pruned && !slices.ContainsFunc(b.runs, func(r scheduler.Run) bool {
			return r.Due.Equal(run.Due) && r.Cause == "hand"
		}) {
			errs = append(errs, fmt.Errorf("%s was started by hand at %v, and has no such run", run.Schedule, run.Due))
		}
	}
	return errors.Join(errs...)
}

// takeovers measures the time from an interruption to the start of the next attempt. With
// -minutes, the test fails if the median exceeds one poll. Without it, a slow machine is fine.
func (c *chaos) takeovers(byID map[int64]scheduler.Run, sum *tally) {
	began := map[string]time.Time{}
	key := func(r scheduler.Run, attempt int) string {
		return fmt.Sprintf("%s %d %d", r.Schedule, r.Due.UnixMicro(), attempt)
	}
	for _, run := range byID {
		began[key(run, run.Attempt)] = run.Started
	}
	for id, lease := range c.leases {
		run := byID[id]
		next := began[key(run, run.Attempt+1)]
		if run.State != "lost" || next.IsZero() || c.down(lease.at, next) {
			continue // its end was recorded after all, nobody had to take it over, or nobody could
		}
		sum.afterLease = append(sum.afterLease, next.Sub(lease.end))
		sum.afterKill = append(sum.afterKill, next.Sub(lease.at))
	}
	slices.Sort(sum.afterLease)
	slices.Sort(sum.afterKill)
	if *minutes == 0 {
		return
	}
	// slack is what the machine may add.
	const slack = time.Second
	if p50, _ := middle(sum.afterLease); p50 > c.poll+slack {
		c.t.Errorf("takeovers take %v after the end of the lease, want a poll of %v", p50, c.poll)
	}
	if p50, _ := middle(sum.afterKill); p50 > c.lease+c.poll+slack {
		c.t.Errorf("takeovers take %v, want a lease of %v and a poll of %v", p50, c.lease, c.poll)
	}
}

func middle(sorted []time.Duration) (p50, last time.Duration) {
	if len(sorted) == 0 {
		return 0, 0
	}
	return sorted[len(sorted)/2], sorted[len(sorted)-1]
}

// down reports whether the database refused writes at some time within a period.
func (c *chaos) down(from, to time.Time) bool {
	return slices.ContainsFunc(c.outages, func(o [2]time.Time) bool { return from.Before(o[1]) && to.After(o[0]) })
}

// tables prints the outcomes of the slots, one line per engine.
type tables struct {
	mu    sync.Mutex
	lines []string
}

func (all *tables) add(engine string, c *chaos, sum *tally) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s := sum.states
	p50, last := middle(sum.afterLease)
	p50Kill, lastKill := middle(sum.afterKill)
	all.lines = append(all.lines, strings.ReplaceAll(fmt.Sprint(
		engine, "|", len(c.schedules), "|", sum.slots, "|", s["ok"], "|", s["failed"], "|", s["timeout"], "|", s["lost"], "|", s["retry"],
		"|", s["skipped"], "|", s["missed"], "|", s["cancelled"], "|", sum.left, "|", sum.holes, "|", sum.duplicates, "|", sum.overlaps,
		"|", round(p50), "|", round(last), "|", round(p50Kill), "|", round(lastKill), "|", len(sum.afterLease),
		"|", c.kills, "|", c.stops, "|", c.restarts, "|", c.exits, "|", sum.begun, "|"), "|", "\t"))
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

func (all *tables) log(t *testing.T) {
	all.mu.Lock()
	defer all.mu.Unlock()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, strings.Join([]string{
		"", "schedules", "slots", "ok", "failed", "timeout", "lost", "retry", "skipped", "missed", "cancelled", "left",
		"no outcome", "duplicates", "overlaps", "after lease p50", "max", "after kill p50", "max", "takeovers",
		"kills", "stops", "restarts", "exits", "commands", "",
	}, "\t"))
	for _, line := range all.lines {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush()
	t.Logf("%v of chaos\n%s", planned().end, text.String())
}
