package scheduler

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// plans caches parsed plans: parsing one takes longer than using it, and many schedules share one.
var plans planCache

type planCache struct {
	mu   sync.Mutex
	read map[[3]string]*cronspec.Schedule
}

// planLimit bounds the cache; when it is full, it is emptied.
const planLimit = 10_000

func (p *planCache) get(s *Schedule) (*cronspec.Schedule, error) {
	key := [3]string{s.Spec, s.Zone, s.DST}
	p.mu.Lock()
	plan := p.read[key]
	p.mu.Unlock()
	if plan != nil {
		return plan, nil
	}
	plan, err := s.Slots()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.read == nil || len(p.read) >= planLimit {
		p.read = map[[3]string]*cronspec.Schedule{}
	}
	p.read[key] = plan
	return plan, nil
}

// planNew computes the first slot of rows that were inserted or resumed by hand. It returns the
// number of rows handled.
func (s *Scheduler) planNew(ctx context.Context, lane string) (planned int, err error) {
	planned, _, err = s.planSome(ctx, lane, batch, []int64{0})
	if !s.separable(ctx, err) {
		return planned, err
	}
	// One by one, so that a row that cannot be planned blocks no other.
	var errs []error
	failed := []int64{0}
	for planned = 0; planned < batch; planned++ {
		n, id, err := s.planSome(ctx, lane, 1, failed)
		if err != nil && (n == 0 || !s.separable(ctx, err)) {
			return planned, err
		}
		if n == 0 {
			break
		}
		if err != nil {
			failed, errs = append(failed, id), append(errs, err)
		}
	}
	return planned - len(errs), errors.Join(errs...)
}

// planSome plans up to limit rows, excluding the ids in but. It returns the number of rows tried
// and the id of the first.
func (s *Scheduler) planSome(ctx context.Context, lane string, limit int, but []int64) (planned int, first int64, err error) {
	var left leftovers
	err = s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		planned, left = 0, leftovers{}
		locked, err := selectLocked(ctx, tx, unplanned, sqlrun.Args{"lane": lane, "limit": limit, "but": but})
		if err != nil || len(locked) == 0 {
			return err
		}
		planned, first = len(locked), locked[0].ID
		var moves []sqlrun.Args
		var passes []passage
		for i := range locked {
			c := &locked[i]
			noted := plannedOf(c.Spec, c.Zone, c.DST)
			if err := c.load(); err != nil {
				if err := s.close(ctx, tx, c, "failed", err.Error(), &left); err != nil {
					return err
				}
				continue
			}
			if !c.Due.IsZero() && !c.Due.After(c.lastMoment()) {
				passes = append(passes, passage{c, "skipped", c.slotRange(c.Due, c.lastMoment(), whyInactive)})
			}
			due, next, err := c.restart()
			if err != nil {
				if err := s.close(ctx, tx, c, "ended", strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "), &left); err != nil {
					return err
				}
				continue
			}
			moves = append(moves, sqlrun.Args{"id": c.ID, "due": micros(due), "upcoming": micros(next), "noted": noted})
		}
		if err := passAll(ctx, tx, passes, &left); err != nil {
			return err
		}
		return moveAll(ctx, tx, plan, moves, len(moves))
	})
	if err == nil {
		s.doLater(left)
	}
	return planned, first, err
}

// plannedOf returns the value of the column planned for these settings. The column stale
// compares it with the present ones.
func plannedOf(spec, zone, dst string) string { return spec + " " + zone + " " + dst }

// unplanChanged makes schedules that were changed by hand be planned again.
func (s *Scheduler) unplanChanged(ctx context.Context) error {
	_, err := s.db.Exec(ctx, unplan, sqlrun.Args{"limit": batch})
	return err
}

// backSlack is how much later than the present a row may have been written without the clock having gone back: servers of a cluster may
// differ by less.
const backSlack = 2 * time.Second

// noteClock looks at the database's clock, once when it is first seen and whenever it has gone back. Schedules with an interval are then
// planned anew from its present time. Otherwise they would stand still until it shows again what it has shown.
func (s *Scheduler) noteClock(ctx context.Context, now int64) (moved bool, err error) {
	back := time.Duration(s.clockAt-now) * time.Microsecond
	if s.clockAt != 0 && back <= backSlack {
		s.clockAt = max(s.clockAt, now)
		return false, nil
	}
	var all, n int64
	for first := true; first || n == batch; first = false {
		if n, err = s.db.Exec(ctx, unplanAhead, sqlrun.Args{"limit": batch, "slack": backSlack.Microseconds()}); err != nil {
			return false, err
		}
		all += n
	}
	if s.clockAt != 0 {
		s.opt.Logger.Error("the database's clock went back: what was planned or leased for later waits until it shows that time again, "+
			"except schedules with @every; see dbcron doctor", "by", back, "planned_anew", all)
	} else if all > 0 {
		s.opt.Logger.Warn("the database's clock went back while no daemon ran: schedules with @every are planned anew", "planned_anew", all)
	}
	s.clockAt = now
	if all > 0 {
		s.mu.Lock()
		s.since = 0 // they may be due before what was found first
		s.mu.Unlock()
	}
	return all > 0, nil
}
