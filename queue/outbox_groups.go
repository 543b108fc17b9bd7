package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/trouble"
)

// A concluder ends the groups whose last jobs a worker has ended. The worker's mutex guards it.
type concluder struct {
	*core
	turn   turn
	groups map[int64]bool // groups that may be able to end
	busy   bool           // a check is under way
	wake   chan struct{}
	died   chan struct{} // a process died, perhaps between ending a job and its group
}

// concludeEvery is the interval between checks for groups whose end was missed because a process
// died between ending a job and its group.
const concludeEvery = time.Minute

// noteEnd records that a job has ended, and with it perhaps its group. mu is held.
func (e *concluder) noteEnd(group int64) {
	if group != 0 {
		e.groups[group] = true
		e.nudgeEnds()
	}
}

func (e *concluder) nudgeEnds() { signal(e.wake) }

// heardEnds schedules checks of groups that may have ended according to another client; no ids mean
// any group.
func (e *concluder) heardEnds(ids []int64) {
	if len(ids) == 0 {
		signal(e.died)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.groups[id] = true
	}
	e.nudgeEnds()
}

// conclude ends groups whose jobs have ended here, and now and then those of others.
func (e *concluder) conclude(ctx context.Context) {
	trouble := trouble.New(e.log, "checking for ended groups")
	tick := time.NewTicker(concludeEvery)
	defer tick.Stop()
	any := true
	for {
		err := e.concludeEnds(ctx)
		if any {
			missed := e.c.concludeAny(ctx)
			any, err = missed != nil, errors.Join(err, missed)
		}
		if ctx.Err() == nil && trouble.Note(err) > 0 {
			time.AfterFunc(time.Second, e.nudgeEnds)
		}
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		case <-e.died:
			any = true
		case <-tick.C:
			any = true
		}
	}
}

// concludeEnds ends groups whose jobs have ended here.
func (e *concluder) concludeEnds(ctx context.Context) error {
	end, err := e.turn.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	e.mu.Lock()
	all := slices.Sorted(maps.Keys(e.groups))
	clear(e.groups)
	e.busy = len(all) > 0
	e.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	err = e.c.conclude(ctx, all...)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = false
	if err != nil {
		for _, id := range all {
			e.groups[id] = true
		}
	}
	return err
}

// concludeLast ends these groups when the worker stops. If that fails, others do it.
func (e *concluder) concludeLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := e.concludeEnds(ctx); err != nil {
		e.log.Warn("checking for ended groups failed; another worker will do it", "err", err)
	}
}
