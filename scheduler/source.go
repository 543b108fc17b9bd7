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
)

// Changes tells by name what an Import did.
type Changes struct {
	Added, Changed, Removed []string
	Adopted                 []string // had another source; they are among Changed and Unchanged, too
	Unchanged               int
}

// ImportOptions adjusts an Import.
type ImportOptions struct {
	Keep   bool // leave schedules of the source alone that are not given any more
	DryRun bool // only tell what would change
	Adopt  bool // take over schedules of the same names that have another source, or none
}

// Import makes the schedules of a source, such as a file, those that are given,
// and leaves all others alone. A schedule is recognized by its Key in the
// source: one that is there already is changed where it differs, and keeps its
// next slot unless its times changed; one that is not given any more is
// removed, and its runs stay in the history. One that has another name now is
// removed and added. All of it happens, or nothing. A schedule that is given as
// paused is paused, one that is given as active is resumed, and of others the state
// is left as it is, but for those that could not be planned.
//
// Two processes may import the same source at once.
func Import(ctx context.Context, db *dialect.DB, source string, given []Schedule, opt ImportOptions) (Changes, error) {
	if err := CheckImport(source, given); err != nil {
		return Changes{}, err
	}
	for try := 1; ; try++ {
		changes, err := importOnce(ctx, db, source, given, opt)
		// A duplicate may be another process's import of the same source, which
		// the next look will show as done. What stays one has a name that is taken.
		if again := db.Dialect.Duplicate(err) || errors.Is(err, errMoved); !again || try == 10 {
			return changes, nameTaken(ctx, db, err)
		}
	}
}

// CheckImport returns what Import would refuse, without a look at the database.
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

// errMoved means that a daemon has claimed a schedule while it was changed.
var errMoved = errors.New("the schedule has moved meanwhile")

// A takenError says of a name that another schedule has it.
type takenError struct {
	name  string
	cause error
}

func (e *takenError) Error() string   { return e.name + ": " + e.cause.Error() }
func (e *takenError) Unwrap() error   { return e.cause }
func (*takenError) Is(err error) bool { return err == ErrExists }

// nameTaken puts into words who has the name.
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

// errDry rolls a dry run back.
var errDry = errors.New("only a dry run")

func importOnce(ctx context.Context, db *dialect.DB, source string, given []Schedule, opt ImportOptions) (c Changes, err error) {
	err = changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
		c = Changes{}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		stored, err := dialect.Select(ctx, tx, ofSource, dialect.Args{"source": source}, scanSchedule)
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

// removeOld removes what is not given any more, before anything is added: a name
// may pass from one key to another. It returns the others, by their keys.
func removeOld(ctx context.Context, tx *dialect.Session, source string, stored, given []Schedule,
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
		if _, err := tx.Exec(ctx, removeOfSource, dialect.Args{"ids": part, "source": source}); err != nil {
			return nil, err
		}
	}
	return old, nil
}

// adopt gives a schedule that another source has, or none, to this one, and returns it as it is
// then; nil: there is none of that name. Its row is locked first, so that no daemon moves it to
// another slot, and no import of its old source changes it meanwhile: that one then finds it gone.
func adopt(ctx context.Context, tx *dialect.Session, s *Schedule, c *Changes) (*Schedule, error) {
	found, err := lock(ctx, tx, s.Name)
	if errors.Is(err, ErrNotFound) {
		return nil, nil //nolint:nilnil // it will be added
	}
	if err != nil {
		return nil, err
	}
	n, err := tx.Exec(ctx, takeSource, dialect.Args{"id": found.ID, "source": s.Source, "key": null(s.Key)})
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

func importOne(ctx context.Context, tx *dialect.Session, s Schedule, old *Schedule, now time.Time, c *Changes) error {
	if old != nil {
		// What a file does not say stays: paused by hand, given up, ended. But what
		// could not be planned is tried again.
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

// change gives a stored schedule the settings of another one, as far as they
// differ, and tells whether they did.
func change(ctx context.Context, tx *dialect.Session, s Schedule, old *Schedule, now time.Time) (changed bool, err error) {
	if s.filled().FirstRun == "now" {
		s.FirstRun = "next" // it is not new
	}
	args, err := s.args(now)
	if err != nil {
		return false, err
	}
	args["first_run"] = old.FirstRun
	args["id"], args["source"] = old.ID, null(old.Source)
	same := args["spec"] == old.Spec && args["zone"] == old.Zone && args["dst"] == old.DST &&
		args["starts"] == micros(old.Starts) && args["ends"] == micros(old.Ends) && s.Jitter == old.Jitter
	if !same && (s.State == "failed" || s.State == "ended") { // its new times begin anew
		s.State = ""
		if args, err = s.args(now); err != nil {
			return false, err
		}
		args["first_run"], args["id"], args["source"] = old.FirstRun, old.ID, null(old.Source)
	}
	filled := s.filled()
	if lane := filled.lane(); lane != old.lane() {
		if _, err := tx.Exec(ctx, relane, dialect.Args{"schedule": old.Name, "lane": lane}); err != nil {
			return false, err
		}
	}
	if !same || cmp.Or(s.State, "active") != old.State {
		return true, replanOne(ctx, tx, args, old, now)
	}
	was := old.settings()
	for name, value := range filled.settings() {
		same = same && (was[name] == value || name == "first_run")
	}
	if same {
		return false, nil
	}
	_, err = tx.Exec(ctx, update, args)
	return true, err
}

// replanOne gives a schedule other times. Slots that have come and have not been
// run are recorded as missed: nobody would look for them any more.
func replanOne(ctx context.Context, tx *dialect.Session, args dialect.Args, old *Schedule, now time.Time) error {
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
	if old.State != "active" {
		return passOver(ctx, tx, c, "skipped", c.stretch(old.Due, c.lastMoment(), whyInactive))
	}
	return passOver(ctx, tx, c, "missed", c.stretch(old.Due, c.lastMoment(), "the schedule's times were changed before it ran"))
}

// String tells the changes in one line, for people.
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
