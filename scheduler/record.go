package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
)

// An outcome is the result of a run as it is recorded.
type outcome struct {
	state string
	why   string
	back  bool // another daemon should take the run over: see handBack
	none  bool // write nothing: the lease ends it
	final bool // a retry cannot help

	stops int           // how many daemons in a row were stopped soon after the run had begun
	pause time.Duration // until another daemon may take it over
}

// outcomeOf turns the result of the work into an outcome. Work that has begun and must not be
// repeated is not handed back.
func outcomeOf(e *execution, r guardian.Result) outcome {
	o := usualOutcome(e, r)
	if e.what.Unrepeatable && o.back && r.Cause != guardian.NotStarted {
		return outcome{state: "lost", why: strings.TrimPrefix(o.why, backText) + "; " + notRepeated}
	}
	return o
}

func usualOutcome(e *execution, r guardian.Result) outcome {
	o := causedOutcome(e, r)
	if r.LeftBehind {
		o.why = strings.TrimPrefix(o.why+"; "+leftBehind, "; ")
	}
	return o
}

// leftBehind is recorded with the outcome of a command that ended before what it had started, whatever its exit code.
const leftBehind = "killed what the command left running in the background, as the end of a run does: " +
	"let the command wait for it, set a longer linger, or start it as a service"

func causedOutcome(e *execution, r guardian.Result) outcome {
	s := e.why()
	if goesOn(r) && (s.cause == drained || s.cause == notStopped) {
		return outcome{state: "lost", why: r.Err.Error(), none: true}
	}
	switch r.Cause {
	case guardian.Exited:
		switch {
		case r.Err != nil:
			return outcome{state: "failed", why: reason(r.Err.Error())}
		case r.Signal != 0:
			return outcome{state: "failed", why: fmt.Sprintf("ended by signal %d (%s)", r.Signal, r.Signal)}
		case r.ExitCode > 0 && e.what.Kind != "http":
			return outcome{state: "failed", why: fmt.Sprintf("exit code %d", r.ExitCode)}
		}
		return outcome{state: "ok"}
	case guardian.NotStarted:
		switch {
		case s.cause != notStopped:
			return stoppedOutcome(s, r)
		case errors.Is(r.Err, errNoExecutor):
			return outcome{state: "retry", why: backText + r.Err.Error(), back: true}
		case errors.Is(r.Err, guardian.ErrPast):
			return outcome{state: "retry", why: backText + "the lease had ended before it was begun", back: true}
		}
		return outcome{state: "failed", why: reason(r.Err.Error())}
	case guardian.Deadline:
		return outcome{state: "lost", why: "killed: the lease could not be renewed in time", back: true}
	case guardian.Stopped, guardian.Killed:
		return stoppedOutcome(s, r)
	}
	return outcome{state: "lost", why: "killed: " + reason(r.Err.Error()), back: true}
}

// notRepeated is the reason recorded for such a run.
const notRepeated = "not begun again: repeatable is no"

const backText = "handed back: "

// stoppedOutcome returns the outcome of a run that was stopped.
func stoppedOutcome(s stop, r guardian.Result) outcome {
	if goesOn(r) {
		s.why += "; " + strings.TrimPrefix(r.Err.Error(), "guardian: ")
	}
	switch s.cause {
	case timedOut:
		return outcome{state: "timeout", why: s.why}
	case cancelled:
		return outcome{state: "cancelled", why: s.why}
	case drained:
		return outcome{state: "retry", why: backText + "the daemon was stopped", back: true}
	case abandoned:
		return outcome{state: "lost", none: true}
	}
	return outcome{state: "cancelled", why: "stopped by a signal to its guardian"}
}

// record writes the outcome of a run. It retries until the database accepts it; meanwhile the lease
// is renewed, so that nobody repeats the work.
func (s *Scheduler) record(working context.Context, e *execution, r guardian.Result) {
	if len(r.Survivors) > 0 {
		s.opt.Logger.Error("processes could not be killed", "schedule", e.schedule, "pids", r.Survivors)
	}
	o := s.judge(e, outcomeOf(e, r), r)
	defer func() { s.endTrace(&e.trace, o.state, o.why) }()
	trouble := trouble.New(s.opt.Logger, "recording a run")
	held := false
	for !o.none && !e.isLost() {
		mine, err := s.writeOutcome(working, e, o, r, held)
		held = errors.Is(err, errHeld)
		if err == nil && !mine {
			e.lose()
		}
		if err == nil {
			break
		}
		select {
		case <-working.Done():
			s.opt.Logger.Error("a run's outcome was not recorded", "schedule", e.schedule, "due", e.due, "state", o.state, "err", err)
			return
		case <-time.After(trouble.Wait(err, 0)):
		}
	}
	if e.isLost() {
		o.state, o.why = "lost", "the lease had ended; another daemon has the run"
	}
	said := []any{"schedule", e.schedule, "state", o.state, "due", e.due, "attempt", e.attempt, "id", e.id, "took", r.Took}
	if r.ExitCode >= 0 { // of a command, or the status of a request
		said = append(said, "exit_code", r.ExitCode)
	}
	s.opt.Logger.Info("run", append(said, "error", o.why, "output", Output(r.Output))...)
	if s.opt.Ended != nil {
		barrier.Tell(s.opt.Logger, "Ended", func() { s.opt.Ended(o.state, r.Took) })
	}
	s.trim(&e.run)
}

// writeOutcome writes an outcome, and reports whether the run was still this daemon's. If others have locked its row, or
// its schedule's, for longer than a second, the error is an errHeld. again says that they had at the last attempt.
func (s *Scheduler) writeOutcome(ctx context.Context, e *execution, o outcome, r guardian.Result, again bool) (mine bool, err error) {
	// What claims and renewals hold is free again within milliseconds. A transaction that waited for a stranger's
	// would keep a connection from those who renew leases.
	for wait := firstWait; ; wait *= 2 {
		mine, err = s.tryOutcome(ctx, e, o, r, again)
		again = errors.Is(err, errHeld)
		if !again || wait > time.Second {
			return mine, err
		}
		if !pace.Sleep(ctx, wait) {
			return false, err
		}
	}
}

// tryOutcome is an attempt of writeOutcome, with the cheapest sufficient statement.
func (s *Scheduler) tryOutcome(ctx context.Context, e *execution, o outcome, r guardian.Result, again bool) (mine bool, err error) {
	switch {
	case e.isRecorded():
		return true, nil
	case o.back:
		left := "running"
		if o.state == "retry" {
			left = "retry"
		}
		n, err := s.db.Exec(ctx, handBack, sqlrun.Args{
			"id": e.id, "claim": e.claim, "left": left, "error": o.why, "output": r.Output,
			"stops": o.stops, "after": o.pause.Microseconds(),
		})
		if err == nil && n == 0 {
			err = whyNone(ctx, &s.db.Session, e)
		}
		return n == 1, err
	case e.entailsNothing(o):
		return s.finisher.finish(ctx, s.db, rowOf(&e.run, o, r), again, nil)
	}
	return s.finisher.finish(ctx, s.db, rowOf(&e.run, o, r), again, &ending{e: e, o: o, r: r})
}

// An ending is the end of a run from which something follows.
type ending struct {
	e *execution
	o outcome
	r guardian.Result
	c *candidate // its schedule, if it is locked; nil: it is gone
}

// endTogether writes outcomes from which something follows, in one transaction. Those whose schedules or runs others have locked
// come back as an errHeld. If that fails, each is written by itself.
func (s *Scheduler) endTogether(part []*pendingOutcome) {
	if len(part) == 1 {
		part[0].mine, part[0].err = s.endAlone(part[0].ctx, part[0].ending)
		return
	}
	var left leftovers
	err := s.db.ShortTx(part[0].ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		left = leftovers{}
		schedules, err := lockSome(ctx, tx, part)
		if err != nil {
			return err
		}
		var ends []*ending
		for _, one := range part {
			c, is := schedules[one.ending.e.schedule]
			one.mine, one.err = is, nil
			if !is {
				one.err = fmt.Errorf("%w of the schedule %s", errHeld, one.ending.e.schedule)
				continue
			}
			own := *one.ending
			own.c = c
			ends = append(ends, &own)
		}
		return s.concludeAll(ctx, tx, ends, &left)
	})
	if err == nil {
		s.doLater(left)
		return
	}
	for _, one := range part {
		one.mine, one.err = s.endAlone(one.ctx, one.ending)
	}
}

// endAlone writes one outcome with what follows from it.
func (s *Scheduler) endAlone(ctx context.Context, end *ending) (mine bool, err error) {
	var left leftovers
	err = s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		left = leftovers{}
		c, err := lockFree(ctx, tx, end.e.schedule)
		if err == nil || errors.Is(err, ErrNotFound) {
			mine, err = s.conclude(ctx, tx, end.e, &c, err != nil, end.o, end.r, &left)
		}
		return err
	})
	if err == nil {
		s.doLater(left)
	}
	return mine, err
}

func rowOf(r *run, o outcome, result guardian.Result) finishRow {
	return finishRow{
		id: r.id, claim: r.claim, outcome: o.state, why: o.why, said: result.Output,
		exitStatus: exitCode(result), keep: keepOf(r.what),
	}
}

func exitCode(r guardian.Result) any {
	if r.ExitCode < 0 {
		return nil
	}
	return r.ExitCode
}

// entailsNothing reports whether the end of a run changes only its own row, as far as this daemon
// knew when the run began. A run that has been waiting since then checks again by itself.
func (e *execution) entailsNothing(o outcome) bool {
	w := e.what
	good := o.state == "ok"
	switch {
	case e.crowded, w.Overlap == "queue", w.Overlap == "replace":
		return false
	case w.MaxFailures > 0, good && w.OnSuccess != "":
		return false
	case !good && o.state != "cancelled": // someone must be notified
		return false
	}
	return true
}

// conclude writes an outcome with its consequences: the next attempt, or the count of failures, the
// schedule that follows, and the run that waited for this one. It reports whether the run was still
// this daemon's. The schedule is locked, or gone. left is as in noteAll.
func (s *Scheduler) conclude(
	ctx context.Context, tx *sqlrun.Session, e *execution, c *candidate, gone bool, o outcome, r guardian.Result, left *leftovers,
) (mine bool, err error) {
	end := &ending{e: e, o: o, r: r, c: c}
	if gone {
		end.c = nil
	}
	next := end.retry()
	o = end.o
	n, err := tx.Exec(ctx, finish, sqlrun.Args{"rows": finishRows{rowOf(&e.run, o, r)}})
	if err == nil && n == 0 {
		err = whyNone(ctx, tx, e)
	}
	if err != nil || n == 0 || gone {
		return n == 1, err
	}
	if next != nil {
		_, err = tx.Exec(ctx, wait, sqlrun.Args{"rows": []sqlrun.Args{next}})
		return true, err
	}
	var then sequel
	if err := s.entail(ctx, tx, c, &e.run, o, &then, left); err != nil {
		return true, err
	}
	return true, then.write(ctx, tx, left)
}

// concludeAll is conclude for many runs. If one of them is no longer this daemon's, or is locked by others, it returns an errMixed.
func (s *Scheduler) concludeAll(ctx context.Context, tx *sqlrun.Session, all []*ending, left *leftovers) error {
	var rows finishRows
	var waits []sqlrun.Args
	var last []*ending
	for _, end := range all {
		if next := end.retry(); next != nil {
			waits = append(waits, next)
		} else if end.c != nil {
			last = append(last, end)
		}
		rows = append(rows, rowOf(&end.e.run, end.o, end.r))
	}
	if len(rows) == 0 {
		return nil
	}
	if n, err := tx.Exec(ctx, finish, sqlrun.Args{"rows": rows}); err != nil || n != int64(len(rows)) {
		return cmp.Or(err, errMixed)
	}
	if len(waits) > 0 {
		if _, err := tx.Exec(ctx, wait, sqlrun.Args{"rows": waits}); err != nil {
			return err
		}
	}
	var then sequel
	for _, end := range last {
		if err := s.entail(ctx, tx, end.c, &end.e.run, end.o, &then, left); err != nil {
			return err
		}
	}
	return then.write(ctx, tx, left)
}

// retry returns the next attempt of a failed run, as a row of wait; nil: there is none, and if the policy allows one, the outcome says why.
func (end *ending) retry() sqlrun.Args {
	if failure := end.o.state == "failed" || end.o.state == "timeout"; !failure || end.c == nil || end.o.final {
		return nil
	}
	after, again, why := end.c.retryAfter(end.e, end.r)
	end.o.why += why
	if !again {
		return nil
	}
	next := end.e.run
	next.attempt++
	next.failures++
	args := next.args(end.c.lane)
	args["after_us"] = after.Microseconds()
	return args
}

// A sequel is what follows from the ends of runs, and is written for all of them at once.
type sequel struct {
	notes  noteRows
	counts map[int64]int // failures in a row, by schedule
	turns  []candidate   // schedules whose next runs may begin
}

// count sets how many slots of a schedule have failed in a row.
func (q *sequel) count(id int64, failures int) {
	if q.counts == nil {
		q.counts = map[int64]int{}
	}
	q.counts[id] = failures
}

// write writes what follows. The schedules are locked. left is as in noteAll.
func (q *sequel) write(ctx context.Context, tx *sqlrun.Session, left *leftovers) error {
	if err := q.tell(ctx, tx, left); err != nil {
		return err
	}
	if len(q.counts) > 0 {
		var rows []sqlrun.Args
		for _, id := range slices.Sorted(maps.Keys(q.counts)) {
			rows = append(rows, sqlrun.Args{"id": id, "counted": q.counts[id]})
		}
		if _, err := tx.Exec(ctx, failed, sqlrun.Args{"rows": rows}); err != nil {
			return err
		}
	}
	return releaseNext(ctx, tx, q.turns, left)
}

// tell records the incidents so far. Of those of a schedule, the last one counts.
func (q *sequel) tell(ctx context.Context, tx *sqlrun.Session, left *leftovers) error {
	last := map[string]int{}
	for i := range q.notes {
		last[q.notes[i].who] = i
	}
	var rows noteRows
	for i := range q.notes {
		if last[q.notes[i].who] == i {
			rows = append(rows, q.notes[i])
		}
	}
	q.notes = nil
	return noteAll(ctx, tx, rows, left)
}

// entail carries out the consequences of a slot's last attempt, and adds to then what is written for many. The schedule is locked. left
// is as in noteAll.
func (s *Scheduler) entail(
	ctx context.Context, tx *sqlrun.Session, c *candidate, r *run, o outcome, then *sequel, left *leftovers,
) error {
	next := ""
	if bad := o.state; bad == "failed" || bad == "timeout" || bad == "lost" {
		then.notes.add(&c.Schedule, incident{problem: bad, detail: o.why, run: r.id, due: r.due})
	}
	switch o.state {
	case "ok":
		next = c.OnSuccess
		if c.Failures > 0 {
			c.Failures = 0
			then.count(c.ID, 0)
		}
	case "failed", "timeout", "lost":
		if o.state == "lost" && !c.Unrepeatable {
			break
		}
		next = c.OnFailure
		if err := s.countFailure(ctx, tx, c, then, left); err != nil {
			return err
		}
	}
	if next != "" {
		if err := s.follow(ctx, tx, next, r); err != nil {
			return err
		}
	}
	then.turns = append(then.turns, *c)
	return nil
}

// releaseNext lets the next runs of locked schedules begin, if nothing of the schedule is under way.
// Whoever ends runs calls it. If others have locked the row of such a run, it is left for later.
func releaseNext(ctx context.Context, tx *sqlrun.Session, schedules []candidate, left *leftovers) error {
	schedules = slices.DeleteFunc(schedules, func(c candidate) bool { return c.overlap() == "allow" })
	if len(schedules) == 0 {
		return nil
	}
	open, err := openRuns(ctx, tx, schedules)
	if err != nil {
		return err
	}
	var ids []int64
	for _, line := range open {
		if !slices.ContainsFunc(line, func(o openRun) bool { return o.state != "waiting" }) {
			ids = append(ids, line[0].id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	held, err := releaseFree(ctx, tx, ids)
	left.turns = append(left.turns, held...)
	return err
}

// countFailure counts a failed slot. It sets the schedule's state to failed after too many in a
// row.
func (s *Scheduler) countFailure(ctx context.Context, tx *sqlrun.Session, c *candidate, then *sequel, left *leftovers) error {
	if c.MaxFailures == 0 {
		return nil
	}
	c.Failures++
	then.count(c.ID, c.Failures)
	if c.Failures < c.MaxFailures || c.State != "active" {
		return nil
	}
	if err := then.tell(ctx, tx, left); err != nil { // before that it was given up
		return err
	}
	return s.close(ctx, tx, c, "failed", fmt.Sprintf("%d slots in a row have failed", c.Failures), left)
}

// follow starts the schedule that OnSuccess or OnFailure names. Its slot is that of the run, so a
// chain starts each schedule once per slot, even if it leads back to its start.
func (s *Scheduler) follow(ctx context.Context, tx *sqlrun.Session, name string, r *run) error {
	n, err := tx.Exec(ctx, chain, sqlrun.Args{"name": name, "due": r.due.UnixMicro(), "by": r.id})
	if err == nil && n == 0 {
		s.opt.Logger.Warn("a schedule was not started by another: it does not exist, or has a run for that slot",
			"schedule", name, "by", r.schedule, "due", r.due)
	}
	return err
}

// trim deletes surplus runs of a schedule's history. It does so seldom enough to be cheap: on
// average when the history has grown by a tenth.
func (s *Scheduler) trim(r *run) {
	keep := cmp.Or(r.what.KeepRuns, usual.KeepRuns)
	if keep < 0 || s.chance() > 10/float64(max(10, keep)) {
		return
	}
	select {
	case s.surplus <- trimming{r.schedule, keep}:
	default: // the next trim will do it
	}
}
