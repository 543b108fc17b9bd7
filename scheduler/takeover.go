package scheduler

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"

	"github.com/dbcron/dbcron/dialect"
)

// takeOver ends up to limit runs whose lease has ended, and begins the next
// attempt of each here. It returns the attempts to start, and how many runs it
// has ended.
func (s *Scheduler) takeOver(ctx context.Context, limit int) (runs []run, ended int, err error) {
	token := rand.Text()
	err = s.db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		runs, ended = nil, 0
		lost, err := dialect.Select(ctx, tx, expired, dialect.Args{"limit": limit}, func(rows *sql.Rows) (r run, err error) {
			var due int64
			var state string
			err = rows.Scan(&r.id, &r.schedule, &due, &r.attempt, &state)
			r.due, r.handedBack = instantOf(due), state == "retry"
			return r, err
		})
		if err != nil || len(lost) == 0 {
			return err
		}
		ended = len(lost)
		runs, err = s.takeOverLocked(ctx, tx, lost, token)
		return err
	})
	if err != nil {
		s.forget(ctx, token)
		return nil, 0, err
	}
	return runs, ended, nil
}

func (s *Scheduler) takeOverLocked(ctx context.Context, tx *dialect.Session, lost []run, token string) ([]run, error) {
	works, err := worksOf(ctx, tx, lost)
	if err != nil {
		return nil, err
	}
	ends := map[string][]int64{}
	var begins []dialect.Args
	for _, r := range lost {
		state, err := s.ended(ctx, tx, r)
		if err != nil {
			return nil, err
		}
		ends[state] = append(ends[state], r.id)
		if _, wanted := works[r.schedule]; wanted && state != "failed" { // else it was removed, paused or failed meanwhile
			begins = append(begins, dialect.Args{"schedule": r.schedule, "due": r.due.UnixMicro(), "attempt": r.attempt + 1})
		}
	}
	why := map[string]string{
		"lost":   "its lease ran out: the daemon died or was cut off",
		"failed": fmt.Sprintf("its lease ran out, as that of %d daemons did before: no more attempts", s.opt.MaxAttempts-1),
		"retry":  "handed back", // the daemon has said more
	}
	for state, ids := range ends {
		if _, err := tx.Exec(ctx, lose, dialect.Args{"ids": ids, "state": state, "error": why[state]}); err != nil {
			return nil, err
		}
	}
	return s.begin(ctx, tx, begins, works, token)
}

// ended tells in which state a run ends that is taken over. A command that takes
// its daemon or host down must not take all of them down, so attempts that died
// are counted. Daemons that were stopped, for an upgrade say, are no sign of that.
func (s *Scheduler) ended(ctx context.Context, tx *dialect.Session, r run) (state string, err error) {
	if r.handedBack {
		return "retry", nil
	}
	if r.attempt < s.opt.MaxAttempts {
		return "lost", nil
	}
	died := 0
	err = tx.Get(ctx, deaths, dialect.Args{"schedule": r.schedule, "due": r.due.UnixMicro()}, &died)
	if died+1 >= s.opt.MaxAttempts {
		return "failed", err
	}
	return "lost", err
}

// worksOf reads what is to be run for the schedules of runs, by name.
func worksOf(ctx context.Context, tx *dialect.Session, runs []run) (map[string]work, error) {
	names := make([]string, len(runs))
	for i, r := range runs {
		names[i] = r.schedule
	}
	found, err := dialect.Select(ctx, tx, byName, dialect.Args{"names": names}, scanCandidate)
	works := map[string]work{}
	for _, c := range found {
		if c.bad == nil {
			works[c.Name] = c.work()
		}
	}
	return works, err
}
