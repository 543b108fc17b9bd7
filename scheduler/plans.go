package scheduler

import (
	"context"
	"strings"
	"sync"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// plans keeps plans that were read, since to read one takes longer than to ask
// it, and many schedules share one.
var plans planCache

type planCache struct {
	mu   sync.Mutex
	read map[[3]string]*cronspec.Schedule
}

// planLimit is how many plans are kept; then it begins anew.
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

// planNew gives rows that were inserted or resumed by hand their first slot. It
// returns how many it has dealt with.
func (s *Scheduler) planNew(ctx context.Context, lane string) (planned int, err error) {
	err = s.db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		locked, err := dialect.Select(ctx, tx, unplanned, dialect.Args{"lane": lane, "limit": batch}, scanCandidate)
		if err != nil {
			return err
		}
		planned = len(locked)
		var moves []dialect.Args
		for i := range locked {
			c := &locked[i]
			if err := c.load(); err != nil {
				if err := s.close(ctx, tx, c, "failed", err.Error()); err != nil {
					return err
				}
				continue
			}
			if !c.Due.IsZero() && !c.Due.After(c.lastMoment()) {
				if err := passOver(ctx, tx, c, "skipped", c.stretch(c.Due, c.lastMoment(), whyInactive)); err != nil {
					return err
				}
			}
			due, next, err := c.restart()
			if err != nil {
				if err := s.close(ctx, tx, c, "ended", strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": ")); err != nil {
					return err
				}
				continue
			}
			moves = append(moves, dialect.Args{"id": c.ID, "due": micros(due), "next": micros(next), "begun": 0})
		}
		return moveAll(ctx, tx, moves)
	})
	return planned, err
}
