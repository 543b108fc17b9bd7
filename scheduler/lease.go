package scheduler

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
)

// heldAgain is the interval at which leases are tried again whose rows others have locked.
const heldAgain = time.Second

// keep renews the leases of all running runs until ctx ends.
func (s *Scheduler) keep(ctx context.Context) {
	trouble := trouble.New(s.opt.Logger, "renewing leases")
	for ctx.Err() == nil {
		left, err := s.renew(ctx, s.held())
		rest := min(trouble.Wait(cmp.Or(err, heldOf(left)), s.opt.Lease/3), s.opt.Lease/3)
		if err == nil && len(left) > 0 {
			rest = s.renewLeft(ctx, left, s.opt.Lease/3)
		}
		pace.Sleep(ctx, rest)
	}
}

// renewLeft tries to renew leases whose rows others have locked, for some time at most. It returns what is left of that.
func (s *Scheduler) renewLeft(ctx context.Context, left []*execution, span time.Duration) time.Duration {
	end := instant.Now().Add(span)
	for err := error(nil); err == nil && len(left) > 0; {
		rest := end.Sub(instant.Now())
		if rest <= heldAgain {
			break
		}
		if !pace.Sleep(ctx, heldAgain) {
			return 0
		}
		left, err = s.renew(ctx, slices.DeleteFunc(left, (*execution).isLost))
	}
	return max(0, end.Sub(instant.Now()))
}

// heldOf returns an error for the runs whose rows others have locked.
func heldOf(left []*execution) error {
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("%w; runs: %d; its lease ends unless it is let go", heldRun(left[0].id), len(left))
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

func scanID(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) }

func idsOf(part []*execution) []int64 {
	ids := make([]int64, len(part))
	for i, e := range part {
		ids[i] = e.id
	}
	return ids
}

// renew extends the leases of runs, which are ordered by id, with a statement for a batch. It ends the work of those that are
// lost. It returns the others that could not be renewed, because other transactions have locked their rows.
func (s *Scheduler) renew(ctx context.Context, all []*execution) (left []*execution, err error) {
	for part := range slices.Chunk(all, batch) {
		missed, err := s.renewPart(ctx, part)
		if err != nil {
			return nil, err
		}
		left = append(left, missed...)
	}
	return left, nil
}

func (s *Scheduler) renewPart(ctx context.Context, part []*execution) (left []*execution, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Lease/3)
	defer cancel()
	deadline := s.deadline()
	var mine, there []int64 // renewed, and not lost
	err = s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		args := sqlrun.Args{"ids": idsOf(part), "owner": s.owner, "lease": s.opt.Lease.Microseconds()}
		n, err := tx.Exec(ctx, renew, args)
		if err != nil || n == int64(len(part)) {
			mine = idsOf(part)
			return err
		}
		if mine, err = sqlrun.Select(ctx, tx, renewed, args, scanID); err != nil {
			return err
		}
		if int64(len(mine)) != n {
			mine = nil // one was let go in between: nobody knows which was renewed
		}
		there, err = sqlrun.Select(ctx, tx, leased, args, scanID)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, e := range part {
		switch {
		case slices.Contains(mine, e.id):
			e.extend(deadline)
		case slices.Contains(there, e.id):
			left = append(left, e)
		case s.executing(e):
			e.lose()
		}
	}
	return left, nil
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

// show writes new output of running runs, and the incidents that doLater has kept, until ctx ends.
func (s *Scheduler) show(ctx context.Context) {
	noting := trouble.New(s.opt.Logger, "recording problems of schedules")
	for range pace.Ticks(ctx, publishEvery) {
		for _, e := range s.held() {
			text, wrong, ok := e.news()
			if !ok {
				continue
			}
			// What cannot be written now is written the next time, or with the outcome.
			if n, _ := s.db.Exec(ctx, publish, sqlrun.Args{"id": e.id, "claim": e.claim, "output": text, "error": wrong}); n == 0 {
				e.mu.Lock()
				e.shown = -1
				e.mu.Unlock()
			}
		}
		noting.Note(s.noteRest(ctx))
	}
}

// news returns the output if it has grown since the last snapshot, and what is wrong with the run.
func (e *execution) news() (text, wrong string, ok bool) {
	e.mu.Lock()
	work, before, wrong := e.activity, e.shown, e.unheard
	e.mu.Unlock()
	if work == nil {
		return "", "", false
	}
	text, snapshot := work.Output()
	if snapshot == before {
		return "", "", false
	}
	if wrong != "" {
		wrong += runsOn(work)
	}
	e.mu.Lock()
	if e.shown == before {
		e.shown = snapshot
	}
	e.mu.Unlock()
	return text, wrong, true
}
