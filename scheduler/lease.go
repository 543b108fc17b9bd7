package scheduler

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
)

// keep renews the leases of all running runs until ctx ends.
func (s *Scheduler) keep(ctx context.Context) {
	trouble := trouble.New(s.opt.Logger, "renewing leases")
	for {
		wait := trouble.Wait(s.renew(ctx), s.opt.Lease/3)
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(wait, s.opt.Lease/3)):
		}
	}
}

// held lists the runs that this daemon executes, ordered by id. All transactions lock runs in this
// order.
func (s *Scheduler) held() []*execution {
	var held []*execution
	s.each(func(e *execution) {
		if !e.isLost() {
			held = append(held, e)
		}
	})
	slices.SortFunc(held, func(a, b *execution) int { return cmp.Compare(a.id, b.id) })
	return held
}

func idsOf(part []*execution) []int64 {
	ids := make([]int64, len(part))
	for i, e := range part {
		ids[i] = e.id
	}
	return ids
}

// renew extends the leases of all runs in one statement. If that misses any, it renews them one by
// one to find those that are lost.
func (s *Scheduler) renew(ctx context.Context) error {
	for part := range slices.Chunk(s.held(), batch) {
		all, err := s.renewed(ctx, part)
		if err != nil {
			return err
		}
		if all {
			continue
		}
		for i := range part {
			if _, err := s.renewed(ctx, part[i:i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// renewed renews a batch of leases and reports whether it reached all of them. If a batch of one
// fails, that run is lost, and its work is ended.
func (s *Scheduler) renewed(ctx context.Context, part []*execution) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Lease/3)
	defer cancel()
	deadline := s.deadline()
	var n int64
	err := s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) (err error) {
		n, err = tx.Exec(ctx, renew, sqlrun.Args{"ids": idsOf(part), "owner": s.owner, "lease": s.opt.Lease.Microseconds()})
		return err
	})
	if err != nil {
		return false, err
	}
	if n == int64(len(part)) {
		for _, e := range part {
			e.extend(deadline)
		}
		return true, nil
	}
	if len(part) == 1 && s.executing(part[0]) {
		part[0].lose()
	}
	return false, nil
}

// executing reports whether a run's outcome is still to be recorded. A run that was recorded while
// its lease was being renewed is not lost.
func (s *Scheduler) executing(e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[e.id] == e
}

// cancelRequests ends the runs whose cancellation was requested.
func (s *Scheduler) cancelRequests(ctx context.Context) error {
	held := s.held()
	for at := 0; at < len(held); at += batch {
		part := held[at:min(len(held), at+batch)]
		byID := map[int64]*execution{}
		for _, e := range part {
			byID[e.id] = e
		}
		err := s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			_, err := sqlrun.Select(ctx, tx, unwanted, sqlrun.Args{"ids": idsOf(part)}, func(rows *sql.Rows) (none struct{}, err error) {
				var id int64
				var why string
				if err = rows.Scan(&id, &why); err == nil {
					byID[id].stopFor(stop{cancelled, why}, false)
				}
				return none, err
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// publishEvery is the interval at which the output of running runs is written to the table.
const publishEvery = 3 * time.Second

// show writes new output of running runs until ctx ends.
func (s *Scheduler) show(ctx context.Context) {
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, e := range s.held() {
			text, wrong, ok := e.news()
			if !ok {
				continue
			}
			// Output that cannot be written now is written with the outcome.
			_, _ = s.db.Exec(ctx, publish, sqlrun.Args{"id": e.id, "claim": e.claim, "output": text, "error": wrong})
		}
	}
}

// news returns the output if it has grown since the last snapshot, and what is wrong with the run.
func (e *execution) news() (text, wrong string, ok bool) {
	e.mu.Lock()
	work, before, wrong := e.effort, e.shown, e.unheard
	e.mu.Unlock()
	if work == nil {
		return "", "", false
	}
	text, snapshot := work.Output()
	if snapshot == before {
		return "", "", false
	}
	e.mu.Lock()
	if e.shown == before {
		e.shown = snapshot
	}
	e.mu.Unlock()
	return text, wrong, true
}
