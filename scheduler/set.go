package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Set changes the named schedule, or creates it. It calls change with the stored schedule, or with
// one that has only its name, and tells it whether the schedule is new. Set may call change again if
// the schedule changes meanwhile, so change should have no other effects. If change returns an
// error, Set returns it and stores nothing. Set also returns ErrInvalid, or ErrManaged for a
// schedule from a file. It returns the stored schedule and whether it is new.
//
// The row is locked between reading and writing, so concurrent changes of different settings both
// take effect.
func Set(ctx context.Context, db *dialect.DB, name string, change func(s *Schedule, isNew bool) error) (Schedule, bool, error) {
	if err := CheckName(name); err != nil {
		return Schedule{}, false, err
	}
	for try := 1; ; try++ {
		s, isNew, err := setOnce(ctx, db, name, change)
		// It was created since it was looked for, or a daemon has claimed it.
		if again := errors.Is(err, ErrExists) || errors.Is(err, errMoved); !again || try == 10 {
			return s, isNew, err
		}
	}
}

// Put creates a schedule or replaces all settings of the one with its name; a paused schedule stays
// paused. Programs that declare their schedules in code call Put at startup. If the settings are
// unchanged, nothing changes, not even the next slot. Put returns ErrInvalid, or ErrManaged for a
// schedule that comes from a file.
func Put(ctx context.Context, db *dialect.DB, s Schedule) error {
	_, _, err := Set(ctx, db, s.Name, func(is *Schedule, _ bool) error {
		*is = s
		return nil
	})
	return err
}

func setOnce(ctx context.Context, db *dialect.DB, name string, edit func(*Schedule, bool) error) (s Schedule, isNew bool, err error) {
	err = changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
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
