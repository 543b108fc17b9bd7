package scheduler

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

var (
	// ErrExists means that there is a schedule of that name already.
	ErrExists = errors.New("scheduler: a schedule with this name exists")

	// ErrNotFound means that there is no schedule of that name.
	ErrNotFound = errors.New("scheduler: no schedule with this name")

	// ErrManaged means that a schedule comes from a file and must be changed there.
	ErrManaged = errors.New("scheduler: the schedule comes from a file; change it there and import that")

	// ErrBusy means that a run of the schedule is under way and its policy forbids another one.
	ErrBusy = errors.New("scheduler: a run of the schedule is under way, and its overlap policy is forbid")

	// ErrInvalid means that a schedule is refused. The error's text says why.
	ErrInvalid = cronspec.ErrInvalid
)

// A Schedule says what runs when. Whoever can write one can run commands with the daemons' rights.
type Schedule struct {
	ID   int64
	Name string // up to 200 characters, compared by bytes

	// Source is the file that the schedule comes from, and Key identifies it there: see Import.
	// Both are empty for a schedule made by hand.
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

	Stdin   string            // standard input of a command, body of a request, input of a function, payload of a job
	Env     map[string]string // of a command, added to Options.Env; SHELL names the shell
	Headers map[string]string // of a request
	Dir     string            // working directory of a command; default: the home in Env or of User, or else Options.Dir
	User    string            // user that runs the command if the daemon is root; default: the daemon's
	Job     JobOptions        // of a job

	// Description says for people what the schedule is for: a line of up to 1000 characters.
	Description string

	// Tag selects the daemons that may run the schedule: those with the same tag in
	// Options.Tags. Default: default.
	Tag string

	Policy

	State    string    // active, paused, ended (Ends has passed), or failed: see Reason
	Reason   string    // why it is not active
	Due      time.Time // the next slot, or zero
	Failures int       // consecutive failed slots

	bad string // why its job cannot be enqueued by a schedule: see PeriodicJob
}

// Argv returns words as the Command of a schedule of kind argv.
func Argv(words ...string) string {
	text, err := json.Marshal(words)
	if err != nil {
		return "" // strings always encode
	}
	return string(text)
}

// Slots returns the cron schedule of s, which computes its slots.
func (s *Schedule) Slots() (*cronspec.Schedule, error) { return cronspec.New(s.Spec, s.Zone, s.DST) }

// filled returns the schedule with the defaults filled in.
func (s Schedule) filled() Schedule {
	backoff := s.RetryMaxDelay
	for i := range settingColumns {
		settingColumns[i].Fill(&s)
	}
	if backoff == 0 {
		s.RetryMaxDelay = max(s.RetryMaxDelay, s.RetryDelay)
	}
	s.Starts, s.Ends = s.Starts.Truncate(time.Millisecond), s.Ends.Truncate(time.Millisecond) // as every engine can store it
	return s
}

// Problems returns everything for which Add and Import would refuse the schedule, field by field.
func (s *Schedule) Problems() []Problem {
	f := s.filled()
	return append(f.nameProblems(), f.settingsProblems()...)
}

func (s *Schedule) nameProblems() (all problems) {
	all.wrong("name", CheckName(s.Name))
	if len(s.Source) > 255 || len(s.Key) > 255 {
		all.add("source", "the path of its file is longer than 255 bytes")
	}
	return all
}

// settingsProblems lists what is wrong with settings whose defaults are filled in. It depends on
// nothing else: see settings_cache.go.
func (s *Schedule) settingsProblems() (all problems) {
	if _, err := plans.get(s); err != nil {
		all.wrong("spec", err)
	}
	if s.atBoot() && s.Kind != "shell" && s.Kind != "argv" {
		all.add("spec", "@reboot runs commands only: kind shell or argv")
	}
	all = append(all, s.workProblems()...)
	all.wrong("tag", s.tagProblem())
	return append(all, s.policyProblems()...)
}

func (s *Schedule) tagProblem() error {
	if err := sqlrun.CheckName(s.Tag); err != nil || len(s.Tag) > 64 || strings.ContainsAny(s.Tag, ", ") {
		return fmt.Errorf("%q is not a tag; use up to 64 bytes without blanks and commas", s.Tag)
	}
	return nil
}

// wrong adds an error without the prefix that all of them share.
func (all *problems) wrong(field string, err error) {
	if err != nil {
		all.add(field, "%s", strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
	}
}

// check returns an error for a schedule that cannot be stored or run.
func (s *Schedule) check() error { return s.refusal(s.Problems()) }

// refusal returns the error for a schedule with problems, or nil if there are none.
func (s *Schedule) refusal(all []Problem) error {
	if len(all) == 0 {
		return nil
	}
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.Field + ": " + p.Text
	}
	return fmt.Errorf("%w: %s: %s", ErrInvalid, s.Name, strings.Join(texts, "; "))
}

// CheckName returns ErrInvalid for text that cannot name a schedule.
func CheckName(name string) error {
	if err := sqlrun.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// args returns the schedule's columns, with its first slot after now.
func (s *Schedule) args(now time.Time) (sqlrun.Args, error) {
	f := s.filled()
	plan, err := f.Slots()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	args := f.arguments()
	for name, value := range map[string]any{
		"name": f.Name, "source": null(f.Source), "source_key": null(f.Key), "spec": plan.Spec().String(), "time_zone": plan.Location().String(),
		"planned": plannedOf(plan.Spec().String(), plan.Location().String(), f.DST), "state": "active", "reason": "",
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

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// micros returns an instant as an argument; the zero time is NULL.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// microsOf is micros for rows in which 0 is NULL.
func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Add stores a new schedule. Its first slot is the first after the database's current time. Add
// returns ErrInvalid, or ErrExists.
func Add(ctx context.Context, db *dialect.DB, s Schedule) error {
	s.Source, s.Key = "", ""
	if err := s.check(); err != nil {
		return err
	}
	return changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		return addTo(ctx, tx, &s, now)
	})
}

// addTo stores a new schedule. It returns ErrExists if the name is taken.
func addTo(ctx context.Context, tx *sqlrun.Session, s *Schedule, now time.Time) error {
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

// Edit replaces all settings of the schedule named s.Name, which must not come from a file. If its
// times change, slots that are due but have not run are recorded as missed. Edit returns ErrInvalid,
// ErrNotFound, or ErrManaged.
func Edit(ctx context.Context, db *dialect.DB, s Schedule) error {
	s.Source, s.Key = "", ""
	if err := s.check(); err != nil {
		return err
	}
	return changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
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

// changing runs f in a transaction and wakes the daemons afterwards.
func changing(ctx context.Context, db *dialect.DB, f func(context.Context, *sqlrun.Session) error) error {
	if err := db.ShortTx(ctx, f); err != nil || db.Dialect.Notify == nil {
		return err
	}
	// Outside the transaction, which a refused notification would roll back. Daemons that are not
	// notified find the change by polling.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = db.Exec(ctx, announce, sqlrun.Args{"channel": channel(db)})
	return nil
}

// channel is the notification channel of the daemons of one set of tables.
func channel(db *dialect.DB) string { return "dbcron_scheduler_" + db.Name() }

// lock locks a schedule, waiting for other transactions. It returns ErrNotFound.
func lock(ctx context.Context, tx *sqlrun.Session, name string) (candidate, error) {
	found, err := selectLocked(ctx, tx, lockOne, sqlrun.Args{"name": name})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return candidate{}, err
	}
	return found[0], nil
}

// Delete removes a schedule. Its runs stay in the history. Delete returns ErrNotFound if there is no
// such schedule.
func Delete(ctx context.Context, db *dialect.DB, name string) error {
	n, err := db.Exec(ctx, remove, sqlrun.Args{"name": name})
	if err == nil && n == 0 {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return err
}

// Get returns the schedule with the given name, or ErrNotFound.
func Get(ctx context.Context, db *dialect.DB, name string) (Schedule, error) {
	return getFrom(ctx, &db.Session, name)
}

func getFrom(ctx context.Context, tx *sqlrun.Session, name string) (Schedule, error) {
	found, err := sqlrun.Select(ctx, tx, get, sqlrun.Args{"name": name}, scanSchedule)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return Schedule{}, err
	}
	return found[0], nil
}

// List returns up to limit schedules whose names come after a name, in order. Pass "" to begin with
// the first.
func List(ctx context.Context, db *dialect.DB, after string, limit int) ([]Schedule, error) {
	return sqlrun.Select(ctx, &db.Session, list, sqlrun.Args{"after": after, "limit": limit}, scanSchedule)
}

// ListSome is [List] for a caller with little memory: it returns fewer schedules if their texts have more bytes than most, but at
// least one. more reports whether there may be others after them.
func ListSome(ctx context.Context, db *dialect.DB, after string, limit, most int) (all []Schedule, more bool, err error) {
	n, more, err := fitting(ctx, db, weigh, sqlrun.Args{"after": after, "limit": limit}, most)
	if err != nil || n == 0 {
		return nil, false, err
	}
	all, err = List(ctx, db, after, n)
	return all, len(all) > 0 && (more || n == limit), err
}

// fitting returns how many of the rows that a statement weighs have no more bytes than most together, and at least one, and whether
// there are more.
func fitting(ctx context.Context, db *dialect.DB, weighing *sqlrun.Stmt, args sqlrun.Args, most int) (n int, more bool, err error) {
	sizes, err := sqlrun.Select(ctx, &db.Session, weighing, args, func(rows *sql.Rows) (size int, err error) {
		return size, rows.Scan(&size)
	})
	sum := 0
	for ; err == nil && n < len(sizes) && (n == 0 || sum+sizes[n] <= most); n++ {
		sum += sizes[n]
	}
	return n, n < len(sizes), err
}

// Clock returns the database's current time, which decides what is due.
func Clock(ctx context.Context, db *dialect.DB) (time.Time, error) { return clock(ctx, &db.Session) }

func clock(ctx context.Context, s *sqlrun.Session) (time.Time, error) {
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

// scan reads the columns of a schedule, and then more of the row. Errors in the columns' contents, which somebody may
// have written by hand, are returned in bad.
func (s *Schedule) scan(rows *sql.Rows, more ...any) (bad, err error) {
	var due int64
	places, texts := setting.Places(settingColumns)
	if err := rows.Scan(slices.Concat(s.stateFields(&due), places, more)...); err != nil {
		return nil, err
	}
	s.Due = instantOf(due)
	return setting.Load(settingColumns, s, texts), nil
}

// stateFields are where stateColumns go.
func (s *Schedule) stateFields(due *int64) []any {
	return []any{&s.ID, &s.Name, &s.Source, &s.Key, &s.State, &s.Reason, due, &s.Failures}
}

// instantOf converts µs since 1970; 0 means the zero time.
func instantOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
