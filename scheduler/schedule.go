package scheduler

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

var (
	// ErrExists means that a schedule has that name already.
	ErrExists = errors.New("a schedule with this name exists")

	// ErrNotFound means that no schedule has that name.
	ErrNotFound = errors.New("no schedule with this name")

	// ErrManaged means that a schedule comes from a file, and is changed there.
	ErrManaged = errors.New("the schedule comes from a file; change it there and import that")

	// ErrBusy means that a schedule has a run under way, and its policy forbids
	// another one.
	ErrBusy = errors.New("a run of the schedule is under way, and its overlap policy is forbid")

	// ErrInvalid means that a schedule is refused, for its spec or anything
	// else. The text says why.
	ErrInvalid = cronspec.ErrInvalid
)

// A Schedule says what runs when. Who can write one can run commands with the
// rights of the daemons.
type Schedule struct {
	ID   int64
	Name string // up to 200 characters, compared by bytes

	// Source is the file that the schedule comes from, and Key what it is
	// recognized by there: see Import. Both are empty for one made by hand.
	Source, Key string

	Spec string // see cronspec; @manual has no slots
	Zone string // of the tz database; default: UTC
	DST  string // vixie or wall; default: vixie

	// Kind says what Command is:
	//
	//	shell  a line for the shell (default)
	//	argv   a program and its arguments, a JSON array of strings: see Argv
	//	http   a request, METHOD URL; 2xx is success, a redirect is not followed
	//	sql    one statement, run in one transaction with the record of its outcome;
	//	       what commits by itself, as DDL does on MySQL, is not bound to that
	//	func   the name of a Go function: see Scheduler.Handle
	//	job    the kind of a job that is enqueued: see JobOptions
	Kind    string
	Command string

	Stdin   string            // text for standard input; the body of a request; a function's input; a job's payload
	Env     map[string]string // of a command, beside what Options.Env gives; SHELL names the shell
	Headers map[string]string // of a request
	Dir     string            // where a command starts; default: Options.Dir
	User    string            // whom a command runs as, if the daemon is root; default: the daemon's
	Job     JobOptions        // of a job

	// Tag says which daemons may run it: those that are given the tag. Default:
	// default.
	Tag string

	Policy

	State    string    // active, paused, ended (its end is past), or failed: see Reason
	Reason   string    // why it is not active
	Due      time.Time // the next slot, or zero
	Failures int       // slots that failed in a row

	bad string // why its job cannot be enqueued by a schedule: see PeriodicJob
}

// Argv makes the Command of a schedule of the kind argv.
func Argv(words ...string) string {
	text, err := json.Marshal(words)
	if err != nil {
		return "" // strings can be encoded
	}
	return string(text)
}

// Slots returns the instants that the schedule names.
func (s *Schedule) Slots() (*cronspec.Schedule, error) { return cronspec.New(s.Spec, s.Zone, s.DST) }

// filled returns the schedule with the defaults filled in.
func (s Schedule) filled() Schedule {
	s.Zone = cmp.Or(s.Zone, "UTC")
	s.DST = cmp.Or(s.DST, string(cronspec.Vixie))
	s.Kind = cmp.Or(s.Kind, "shell")
	s.Tag = cmp.Or(s.Tag, "default")
	s.Job = s.Job.filled()
	s.Starts, s.Ends = s.Starts.Truncate(time.Millisecond), s.Ends.Truncate(time.Millisecond) // as every engine can store it
	s.Policy = s.Policy.filled()
	return s
}

// Problems lists all that is wrong with a schedule and would be refused by Add
// and Import, field by field.
func (s *Schedule) Problems() []Problem {
	f := s.filled()
	var all problems
	all.wrong("name", CheckName(f.Name))
	if len(f.Source) > 255 || len(f.Key) > 255 {
		all.add("source", "the path of its file is longer than 255 bytes")
	}
	if _, err := plans.get(&f); err != nil {
		all.wrong("spec", err)
	}
	all = append(all, f.workProblems()...)
	all.wrong("tag", f.tagProblem())
	return append(all, f.policyProblems()...)
}

func (s *Schedule) tagProblem() error {
	if err := dialect.CheckName(s.Tag); err != nil || len(s.Tag) > 64 || strings.ContainsAny(s.Tag, ", ") {
		return fmt.Errorf("%q is no tag; use up to 64 bytes without blanks and commas", s.Tag)
	}
	return nil
}

// wrong adds an error, without the words that it shares with all others.
func (all *problems) wrong(field string, err error) {
	if err != nil {
		all.add(field, "%s", strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
	}
}

// check refuses what cannot be stored or run, before anything is changed.
func (s *Schedule) check() error {
	all := s.Problems()
	if len(all) == 0 {
		return nil
	}
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.Field + ": " + p.Text
	}
	return fmt.Errorf("%w: %s: %s", ErrInvalid, s.Name, strings.Join(texts, "; "))
}

// CheckName returns ErrInvalid for what cannot name a schedule.
func CheckName(name string) error {
	if err := dialect.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// args gives a schedule's columns, and its first slot after now.
func (s *Schedule) args(now time.Time) (dialect.Args, error) {
	f := s.filled()
	plan, err := f.Slots()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	args := f.settings()
	for name, value := range map[string]any{
		"name": f.Name, "source": null(f.Source), "key": null(f.Key),
		"spec": plan.Spec().String(), "zone": plan.Location().String(), "dst": f.DST,
		"starts": micros(f.Starts), "ends": micros(f.Ends), "state": "active", "reason": "",
	} {
		args[name] = value
	}
	due, next, err := f.first(plan, now)
	switch {
	case f.State == "paused":
		args["state"], args["reason"] = f.State, f.Reason
		next = time.Time{}
	case f.over(now):
		args["state"], args["reason"] = "ended", f.pastEnd()
		due, next = time.Time{}, time.Time{}
	case err != nil:
		return nil, err
	}
	args["due"], args["next"] = micros(due), micros(next)
	return args, nil
}

// settings gives the columns that say nothing about times.
func (s *Schedule) settings() dialect.Args {
	past := map[bool]string{false: "no", true: "yes"}[s.RetryPastNext]
	keep := duration.Format(s.KeepFor)
	if s.KeepFor < 0 {
		keep = "forever"
	}
	return dialect.Args{
		"kind": s.Kind, "command": s.Command, "stdin": s.Stdin, "env": object(s.Env), "headers": object(s.Headers),
		"dir": s.Dir, "user": s.User, "tag": s.Tag,
		"job_queue": s.Job.Queue, "job_key": s.Job.Key, "job_priority": s.Job.Priority,
		"job_max_attempts": s.Job.MaxAttempts, "job_timeout": duration.Format(s.Job.Timeout),
		"missed": s.Missed, "missed_window": duration.Format(s.MissedWindow), "overlap": s.Overlap, "first_run": s.FirstRun,
		"max_attempts": s.MaxAttempts, "retry_delay": duration.Format(s.RetryDelay),
		"retry_max_delay": duration.Format(s.RetryMaxDelay), "retry_past_next": past,
		"repeatable": map[bool]string{false: "yes", true: "no"}[s.Unrepeatable],
		"timeout":    duration.Format(s.Timeout), "kill_grace": duration.Format(s.KillGrace), "jitter": duration.Format(s.Jitter),
		"max_failures": s.MaxFailures, "keep_runs": s.KeepRuns, "keep_for": keep,
		"on_success": s.OnSuccess, "on_failure": s.OnFailure, "notify": s.Notify,
	}
}

// object is a map as the tables have it: JSON, in the order of the names.
func object(m map[string]string) string {
	if len(m) == 0 {
		return "{}"
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "{}" // strings can be encoded
	}
	return string(text)
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// micros is an instant as an argument, NULL for the zero time.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// Add stores a schedule made by hand. Its first slot is the first one after
// the database's now. It returns ErrInvalid, or ErrExists.
func Add(ctx context.Context, db *dialect.DB, s Schedule) error {
	s.Source, s.Key = "", ""
	if err := s.check(); err != nil {
		return err
	}
	return changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		return addTo(ctx, tx, &s, now)
	})
}

// addTo stores a new schedule. It returns ErrExists for one that is there.
func addTo(ctx context.Context, tx *dialect.Session, s *Schedule, now time.Time) error {
	args, err := s.args(now)
	if err == nil && s.over(now) {
		err = fmt.Errorf("%w: %s: %s", ErrInvalid, s.Name, s.pastEnd())
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, insert, args)
	if tx.Dialect.Duplicate(err) {
		return fmt.Errorf("%w: %s", ErrExists, s.Name)
	}
	return err
}

// Edit gives a schedule that was made by hand other settings: all those of s,
// found by its name. If its times change, slots that have come and have not been
// run are recorded as missed. It returns ErrInvalid, ErrNotFound, or ErrManaged.
func Edit(ctx context.Context, db *dialect.DB, s Schedule) error {
	s.Source, s.Key = "", ""
	if err := s.check(); err != nil {
		return err
	}
	return changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
		c, err := lock(ctx, tx, s.Name)
		if err != nil {
			return err
		}
		if c.Source != "" {
			return fmt.Errorf("%w: %s comes from %s", ErrManaged, s.Name, c.Source)
		}
		s.State, s.Reason = c.State, c.Reason
		_, err = change(ctx, tx, s, &c.Schedule, c.now)
		return err
	})
}

// changing runs f in a transaction, and wakes the daemons afterwards.
func changing(ctx context.Context, db *dialect.DB, f func(context.Context, *dialect.Session) error) error {
	if err := db.ShortTx(ctx, f); err != nil || db.Dialect.Notify == nil {
		return err
	}
	// Apart from the transaction, which a notification that the server refuses would undo. Daemons
	// that are not told look by themselves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = db.Exec(ctx, announce, dialect.Args{"channel": channel(db)})
	return nil
}

// channel is where the daemons of a set of tables listen.
func channel(db *dialect.DB) string { return "dbcron_scheduler_" + db.Prefix() }

// lock locks a schedule, and waits for it. It returns ErrNotFound.
func lock(ctx context.Context, tx *dialect.Session, name string) (candidate, error) {
	found, err := dialect.Select(ctx, tx, lockOne, dialect.Args{"name": name}, scanCandidate)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return candidate{}, err
	}
	return found[0], nil
}

// Delete removes a schedule. Its runs stay in the history. It returns
// ErrNotFound.
func Delete(ctx context.Context, db *dialect.DB, name string) error {
	n, err := db.Exec(ctx, remove, dialect.Args{"name": name})
	if err == nil && n == 0 {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return err
}

// Get returns the schedule with a name, or ErrNotFound.
func Get(ctx context.Context, db *dialect.DB, name string) (Schedule, error) {
	return getFrom(ctx, &db.Session, name)
}

func getFrom(ctx context.Context, tx *dialect.Session, name string) (Schedule, error) {
	found, err := dialect.Select(ctx, tx, get, dialect.Args{"name": name}, scanSchedule)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return Schedule{}, err
	}
	return found[0], nil
}

// List returns up to limit schedules, by name, that come after a name; "" is
// before the first.
func List(ctx context.Context, db *dialect.DB, after string, limit int) ([]Schedule, error) {
	return dialect.Select(ctx, &db.Session, list, dialect.Args{"after": after, "limit": limit}, scanSchedule)
}

// Clock returns the database's present time, by which everything is decided.
func Clock(ctx context.Context, db *dialect.DB) (time.Time, error) { return clock(ctx, &db.Session) }

func clock(ctx context.Context, s *dialect.Session) (time.Time, error) {
	var us int64
	err := s.Get(ctx, readClock, nil, &us)
	return time.UnixMicro(us).UTC(), err
}

func scanSchedule(rows *sql.Rows) (s Schedule, err error) {
	bad, err := s.scan(rows)
	if bad != nil {
		s.Reason = bad.Error() // a row that a person got wrong must not hide the others
	}
	return s, err
}

// scan reads columns, and then more of the row. What the columns hold that is
// not what it should be, bad says: somebody has written it by hand.
func (s *Schedule) scan(rows *sql.Rows, more ...any) (bad, err error) {
	var env, headers, keepFor, retryPastNext, repeatable string
	var starts, ends, due int64
	texts := make([]string, 7)
	err = rows.Scan(append([]any{
		&s.ID, &s.Name, &s.Source, &s.Key, &s.Spec, &s.Zone, &s.DST, &s.Kind, &s.Command, &s.Stdin, &env, &headers,
		&s.Dir, &s.User, &s.Tag, &s.Missed, &texts[0], &s.Overlap, &s.FirstRun, &s.MaxAttempts, &texts[1], &texts[2],
		&retryPastNext, &repeatable, &texts[3], &texts[4], &texts[5], &starts, &ends, &s.MaxFailures, &s.KeepRuns, &keepFor,
		&s.OnSuccess, &s.OnFailure, &s.State, &s.Reason, &due, &s.Failures,
		&s.Job.Queue, &s.Job.Key, &s.Job.Priority, &s.Job.MaxAttempts, &texts[6], &s.Notify,
	}, more...)...)
	if err != nil {
		return nil, err
	}
	s.Starts, s.Ends, s.Due = instantOf(starts), instantOf(ends), instantOf(due)
	s.RetryPastNext, s.Unrepeatable = retryPastNext == "yes", repeatable == "no"
	if keepFor == "forever" {
		s.KeepFor, keepFor = -1, ""
	}
	for i, to := range []*time.Duration{
		&s.MissedWindow, &s.RetryDelay, &s.RetryMaxDelay, &s.Timeout,
		&s.KillGrace, &s.Jitter, &s.Job.Timeout,
	} {
		*to = durationOf(texts[i], &bad)
	}
	if keepFor != "" {
		s.KeepFor = durationOf(keepFor, &bad)
	}
	s.Env, s.Headers = textsOf("env", env, &bad), textsOf("headers", headers, &bad)
	return bad, nil
}

// instantOf reads µs since 1970, where 0 stands for no time.
func instantOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// durationOf reads a duration of a column, and says if it is none.
func durationOf(text string, bad *error) time.Duration {
	d, err := duration.Parse(text)
	if err != nil {
		*bad = err
	}
	return d
}

// textsOf reads a JSON object of strings, and says if it is none.
func textsOf(column, text string, bad *error) (m map[string]string) {
	if text == "{}" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		*bad = fmt.Errorf("%s is not a JSON object of strings: %w", column, err)
	}
	return m
}
