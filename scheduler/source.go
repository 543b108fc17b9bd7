package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// Changes tells by name what an Import did.
type Changes struct {
	Added, Changed, Removed []string
	Unchanged               int
}

// Import makes the schedules of a source, such as a file, those that are given,
// and leaves all others alone. A schedule is recognized by its Key in the
// source: one that is there already is changed where it differs, and keeps its
// next slot unless its times changed; one that is not given any more is
// removed, and its runs stay in the history. One that has another name now is
// removed and added. All of it happens, or nothing.
//
// Two processes may import the same source at once.
func Import(ctx context.Context, db *dialect.DB, source string, given []Schedule) (Changes, error) {
	if source == "" {
		return Changes{}, fmt.Errorf("%w: the source has no name", ErrInvalid)
	}
	given = slices.Clone(given)
	names, keys := map[string]bool{}, map[string]bool{}
	for i := range given {
		given[i].Source = source
		if err := given[i].check(); err != nil {
			return Changes{}, err
		}
		if names[given[i].Name] || keys[given[i].Key] {
			return Changes{}, fmt.Errorf("%w: %s is given twice", ErrInvalid, given[i].Name)
		}
		names[given[i].Name], keys[given[i].Key] = true, true
	}
	for try := 1; ; try++ {
		changes, err := importOnce(ctx, db, source, given)
		// A duplicate may be another process's import of the same source, which
		// the next look will show as done. What stays one has a name that is taken.
		if !db.Dialect.Duplicate(err) || try == 5 {
			return changes, err
		}
	}
}

func importOnce(ctx context.Context, db *dialect.DB, source string, given []Schedule) (c Changes, err error) {
	err = db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		c = Changes{}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		stored, err := dialect.Select(ctx, tx, ofSource, dialect.Args{"source": source}, scanSchedule)
		if err != nil {
			return err
		}
		old, kept := map[string]*Schedule{}, map[[2]string]bool{}
		for _, s := range given {
			kept[[2]string{s.Key, s.Name}] = true
		}
		var gone []int64
		for i, s := range stored {
			if !kept[[2]string{s.Key, s.Name}] {
				gone = append(gone, s.ID)
				c.Removed = append(c.Removed, s.Name)
				continue
			}
			old[s.Key] = &stored[i]
		}
		// Before anything is added: a name may pass from one key to another.
		if len(gone) > 0 {
			if _, err := tx.Exec(ctx, removeOfSource, dialect.Args{"ids": gone, "source": source}); err != nil {
				return err
			}
		}
		for _, s := range given {
			if err := importOne(ctx, db, tx, s, old[s.Key], now, &c); err != nil {
				return err
			}
		}
		return nil
	})
	return c, err
}

func importOne(ctx context.Context, db *dialect.DB, tx *dialect.Session, s Schedule, old *Schedule, now time.Time, c *Changes) error {
	args, err := s.args(now)
	if err != nil {
		return err
	}
	if old == nil {
		c.Added = append(c.Added, s.Name)
		if _, err = tx.Exec(ctx, insert, args); db.Dialect.Duplicate(err) {
			err = fmt.Errorf("%w: %s (from elsewhere: %w)", ErrExists, s.Name, err)
		}
		return err
	}
	args["id"] = old.ID
	sameTimes := args["spec"] == old.Spec && args["zone"] == old.Zone && args["dst"] == old.DST && old.State != "failed"
	switch {
	case !sameTimes:
		c.Changed = append(c.Changed, s.Name)
		_, err = tx.Exec(ctx, replan, args)
	case s.Command != old.Command || s.Stdin != old.Stdin || !maps.Equal(s.Env, old.Env):
		c.Changed = append(c.Changed, s.Name)
		_, err = tx.Exec(ctx, update, args)
	default:
		c.Unchanged++
	}
	return err
}

// String tells the changes in one line, for people.
func (c Changes) String() string {
	if len(c.Added)+len(c.Changed)+len(c.Removed) == 0 {
		return fmt.Sprintf("%d schedules, nothing changed", c.Unchanged)
	}
	var parts []string
	for _, p := range []struct {
		verb  string
		names []string
	}{{"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}} {
		if len(p.names) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", len(p.names), p.verb))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("%d unchanged", c.Unchanged)), ", ")
}
