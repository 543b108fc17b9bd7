package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/dbcron/dbcron/dialect"
)

// Set changes the schedule with a name, or makes it: change is given the schedule as it is,
// or one that has only its name, and whether it is new. It may be called again, if somebody
// else changes the schedule meanwhile, so it should do nothing else. What it returns as an
// error is returned, and nothing has changed. So it is with ErrInvalid, and with ErrManaged
// for one that comes from a file. Set returns the schedule as it is then, and whether it is
// new.
//
// The row is locked from the look at it to the change: two who change different settings
// at once both have their way.
func Set(ctx context.Context, db *dialect.DB, name string, change func(s *Schedule, isNew bool) error) (Schedule, bool, error) {
	if err := CheckName(name); err != nil {
		return Schedule{}, false, err
	}
	for try := 1; ; try++ {
		s, isNew, err := setOnce(ctx, db, name, change)
		// Somebody has made it since it was looked for, or a daemon has claimed it.
		if again := errors.Is(err, ErrExists) || errors.Is(err, errMoved); !again || try == 10 {
			return s, isNew, err
		}
	}
}

// Put stores a schedule whether or not there is one with its name: it makes it, or gives the
// one that is there all of its settings, and leaves whether that is paused. Programs that
// declare their schedules in code call it when they start. Where the settings are the same
// already, nothing changes, also not the next slot. It returns ErrInvalid, or ErrManaged for
// a schedule that comes from a file.
func Put(ctx context.Context, db *dialect.DB, s Schedule) error {
	_, _, err := Set(ctx, db, s.Name, func(is *Schedule, _ bool) error {
		*is = s
		return nil
	})
	return err
}

func setOnce(ctx context.Context, db *dialect.DB, name string, edit func(*Schedule, bool) error) (s Schedule, isNew bool, err error) {
	err = changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
		c, err := lock(ctx, tx, name)
		isNew = errors.Is(err, ErrNotFound)
		if err != nil && !isNew {
			return err
		}
		if isNew {
			s = Schedule{Name: name}
			if c.now, err = clock(ctx, tx); err != nil {
				return err
			}
		} else {
			s = c.Schedule
		}
		if s.Source != "" {
			return fmt.Errorf("%w: %s comes from %s", ErrManaged, name, s.Source)
		}
		if err := edit(&s, isNew); err != nil {
			return err
		}
		s.Name, s.Source, s.Key = name, "", ""
		s.State, s.Reason = c.State, c.Reason
		if err := s.check(); err != nil {
			return err
		}
		if isNew {
			err = addTo(ctx, tx, &s, c.now)
		} else {
			_, err = change(ctx, tx, s, &c.Schedule, c.now)
		}
		if err != nil {
			return err
		}
		s, err = getFrom(ctx, tx, name)
		return err
	})
	return s, isNew, err
}
