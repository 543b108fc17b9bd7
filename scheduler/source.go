package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Changes lists, by name, what an Import did.
type Changes struct {
	Added, Changed, Removed []string
	Adopted                 []string // had another source; also in Changed or Unchanged
	Unchanged               int
}

// ImportOptions configures an Import.
type ImportOptions struct {
	Keep   bool // leave schedules of the source alone that are no longer given
	DryRun bool // only return what would change
	Adopt  bool // take over schedules of the same name from another source or from none
}

// Import makes the schedules of a source, such as a file, equal to those given, and leaves all other
// schedules alone. It identifies a schedule by its Key within the source. A schedule that exists is
// changed where it differs, and keeps its next slot unless its times change. One that is no longer
// given is deleted; its runs stay in the history. Renaming deletes and adds. Import is atomic. A
// schedule given as paused is paused, one given as active is resumed. Otherwise its state stays,
// except that schedules that could not be planned are tried again.
//
// Several processes may import the same source at once.
func Import(ctx context.Context, db *dialect.DB, source string, given []Schedule, opt ImportOptions) (Changes, error) {
	if err := CheckImport(source, given); err != nil {
		return Changes{}, err
	}
	for try := 1; ; try++ {
		changes, err := importOnce(ctx, db, source, given, opt)
		// A duplicate may stem from a concurrent import of the same source; the next try then finds
		// its result. If the error persists, the name is taken by another schedule.
		if again := db.Dialect.Duplicate(err) || errors.Is(err, errMoved); !again || try == 10 {
			return changes, nameTaken(ctx, db, err)
		}
	}
}

// CheckImport returns the error with which Import would refuse the schedules, without access to the
// database.
func CheckImport(source string, given []Schedule) error {
	if source == "" {
		return fmt.Errorf("%w: the source has no name", ErrInvalid)
	}
	names, keys := map[string]bool{}, map[string]bool{}
	for _, s := range given {
		s.Source = source
		if err := s.check(); err != nil {
			return err
		}
		if names[s.Name] || keys[s.Key] {
			return fmt.Errorf("%w: %s is given twice", ErrInvalid, s.Name)
		}
		names[s.Name], keys[s.Key] = true, true
	}
	return nil
}

// errMoved means that a daemon claimed a schedule while it was being changed.
var errMoved = errors.New("the schedule has moved meanwhile")

// A takenError says that another schedule has the name.
type takenError struct {
	name  string
	cause error
}

func (e *takenError) Error() string   { return e.name + ": " + e.cause.Error() }
func (e *takenError) Unwrap() error   { return e.cause }
func (*takenError) Is(err error) bool { return err == ErrExists }

// nameTaken adds to the error which schedule has the name.
func nameTaken(ctx context.Context, db *dialect.DB, err error) error {
	var taken *takenError
	if !errors.As(err, &taken) {
		return err
	}
	from := "made by hand"
	if other, err := Get(ctx, db, taken.name); err == nil && other.Source != "" {
		from = "from " + other.Source
	}
	return fmt.Errorf("%w: %s, %s", ErrExists, taken.name, from)
}

// errDry rolls back a dry run.
var errDry = errors.New("only a dry run")

func importOnce(ctx context.Context, db *dialect.DB, source string, given []Schedule, opt ImportOptions) (c Changes, err error) {
	err = changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
		c = Changes{}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		stored, err := sqlrun.Select(ctx, tx, ofSource, sqlrun.Args{"source": source}, scanSchedule)
		if err != nil {
			return err
		}
		old, err := removeOld(ctx, tx, source, stored, given, opt, &c)
		if err != nil {
			return err
		}
		for _, s := range given {
			s.Source = source
			from := old[s.Key]
			if from == nil && opt.Adopt {
				if from, err = adopt(ctx, tx, &s, &c); err != nil {
					return err
				}
			}
			if err := importOne(ctx, tx, s, from, now, &c); err != nil {
				return err
			}
		}
		if opt.DryRun {
			return errDry
		}
		return nil
	})
	if errors.Is(err, errDry) {
		err = nil
	}
	return c, err
}

// removeOld deletes schedules that are no longer given, before any is added: a name may move from
// one key to another. It returns the others by key.
func removeOld(ctx context.Context, tx *sqlrun.Session, source string, stored, given []Schedule,
	opt ImportOptions, c *Changes,
) (map[string]*Schedule, error) {
	old, kept, keys := map[string]*Schedule{}, map[[2]string]bool{}, map[string]bool{}
	for _, s := range given {
		kept[[2]string{s.Key, s.Name}], keys[s.Key] = true, true
	}
	var gone []int64
	for i, s := range stored {
		switch {
		case kept[[2]string{s.Key, s.Name}]:
			old[s.Key] = &stored[i]
		case keys[s.Key] || !opt.Keep:
			gone = append(gone, s.ID)
			c.Removed = append(c.Removed, s.Name)
		}
	}
	for part := range slices.Chunk(gone, 1000) {
		if _, err := tx.Exec(ctx, removeOfSource, sqlrun.Args{"ids": part, "source": source}); err != nil {
			return nil, err
		}
	}
	return old, nil
}

// adopt moves a schedule from its old source, or from none, to this one, and returns it, or nil if
// there is none of that name. It locks the row first. So no daemon advances it meanwhile, and an
// import of the old source does not change it: that import finds it gone.
func adopt(ctx context.Context, tx *sqlrun.Session, s *Schedule, c *Changes) (*Schedule, error) {
	found, err := lock(ctx, tx, s.Name)
	if errors.Is(err, ErrNotFound) {
		return nil, nil //nolint:nilnil // it will be added
	}
	if err != nil {
		return nil, err
	}
	n, err := tx.Exec(ctx, takeSource, sqlrun.Args{"id": found.ID, "source": s.Source, "key": null(s.Key)})
	if err == nil && n != 1 {
		err = errMoved
	}
	if err != nil {
		return nil, err
	}
	found.Source, found.Key = s.Source, s.Key
	c.Adopted = append(c.Adopted, s.Name)
	return &found.Schedule, nil
}

func importOne(ctx context.Context, tx *sqlrun.Session, s Schedule, old *Schedule, now time.Time, c *Changes) error {
	if old != nil {
		// A state that the file does not give stays: paused by hand, failed, ended. But a schedule
		// that could not be planned is tried again.
		if s.State == "" && (old.State != "failed" || old.Failures > 0) {
			s.State, s.Reason = old.State, old.Reason
		}
		changed, err := change(ctx, tx, s, old, now)
		if changed {
			c.Changed = append(c.Changed, s.Name)
		} else {
			c.Unchanged++
		}
		return err
	}
	args, err := s.args(now)
	if err != nil {
		return err
	}
	c.Added = append(c.Added, s.Name)
	if _, err = tx.Exec(ctx, insert, args); tx.Dialect.Duplicate(err) {
		err = &takenError{s.Name, err}
	}
	return err
}

// change updates a stored schedule with the settings of s that differ, and reports whether any did.
func change(ctx context.Context, tx *sqlrun.Session, s Schedule, old *Schedule, now time.Time) (changed bool, err error) {
	if s.filled().FirstRun == "now" {
		s.FirstRun = "next" // it is not a new schedule
	}
	args, err := s.args(now)
	if err != nil {
		return false, err
	}
	args["first_run"] = old.FirstRun
	args["id"], args["source"] = old.ID, null(old.Source)
	same := args["spec"] == old.Spec && args["time_zone"] == old.Zone && args["dst"] == old.DST &&
		args["starts_at"] == micros(old.Starts) && args["ends_at"] == micros(old.Ends) && s.Jitter == old.Jitter
	if !same && (s.State == "failed" || s.State == "ended") { // new times reactivate it
		s.State = ""
		if args, err = s.args(now); err != nil {
			return false, err
		}
		args["first_run"], args["id"], args["source"] = old.FirstRun, old.ID, null(old.Source)
	}
	filled := s.filled()
	if lane := filled.lane(); lane != old.lane() {
		if _, err := tx.Exec(ctx, relane, sqlrun.Args{"schedule": old.Name, "lane": lane, "old": old.lane()}); err != nil {
			return false, err
		}
	}
	if !same || cmp.Or(s.State, "active") != old.State {
		return true, replanOne(ctx, tx, args, old, now)
	}
	was := old.arguments()
	for name, value := range filled.arguments() {
		same = same && (was[name] == value || name == "first_run" || name == "spec" || name == "time_zone") // these two as they are stored
	}
	if same {
		return false, nil
	}
	_, err = tx.Exec(ctx, update, args)
	return true, err
}

// replanOne gives a schedule new times. It records slots that are due but have not run as missed,
// since nobody would find them any more.
func replanOne(ctx context.Context, tx *sqlrun.Session, args sqlrun.Args, old *Schedule, now time.Time) error {
	args["seen"] = int64(0)
	if !old.Due.IsZero() {
		args["seen"] = old.Due.UnixMicro()
	}
	n, err := tx.Exec(ctx, replan, args)
	if err == nil && n == 0 {
		err = errMoved
	}
	plan, bad := old.Slots()
	if err != nil || bad != nil || old.Due.IsZero() || old.Due.After(now) {
		return err
	}
	c := &candidate{Schedule: *old, lane: old.lane(), plan: plan, now: now}
	state, why := "missed", "the schedule's times were changed before it ran"
	if old.State != "active" {
		state, why = "skipped", whyInactive
	}
	return passAll(ctx, tx, []passage{{c, state, c.slotRange(old.Due, c.lastMoment(), why)}}, nil)
}

// String summarizes the changes in one line for people.
func (c Changes) String() string {
	if len(c.Added)+len(c.Changed)+len(c.Removed)+len(c.Adopted) == 0 {
		if c.Unchanged == 1 {
			return "1 schedule, nothing changed"
		}
		return fmt.Sprintf("%d schedules, nothing changed", c.Unchanged)
	}
	var parts []string
	for _, p := range []struct {
		verb  string
		names []string
	}{{"adopted", c.Adopted}, {"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}} {
		if len(p.names) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", len(p.names), p.verb))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("%d unchanged", c.Unchanged)), ", ")
}
