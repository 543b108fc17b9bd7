package scheduler

import (
	"sync"

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
