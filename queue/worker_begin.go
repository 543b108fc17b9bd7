package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/trouble"
)

// begin waits for the database, reads the settings of the queues, creates missing ones, and
// registers the worker.
func (w *Worker) begin(ctx context.Context) error {
	trouble := trouble.New(w.log, "registering the worker")
	for {
		err := w.tryBegin(ctx)
		if err == nil || w.db.Dialect.Missing(err) || errors.Is(err, ErrInvalid) {
			return err
		}
		if !pace.Sleep(ctx, time.Duration(100<<min(trouble.Note(err), 5))*time.Millisecond) {
			return nil
		}
	}
}

func (w *Worker) tryBegin(ctx context.Context) error {
	if err := w.c.clock.sync(ctx, &w.db.Session, instant.Now()); err != nil {
		return err
	}
	var queues []*workQueue
	names := map[int]string{}
	sets, err := w.c.queuesNamed(ctx, w.opt.Queues)
	if err != nil {
		return err
	}
	for _, name := range w.opt.Queues {
		set := sets[name]
		if names[set.ID] != "" {
			continue // it was given twice
		}
		q := &workQueue{
			h: &w.holder, id: set.ID, name: set.Name, set: set, blocks: map[int]*tenure{}, joining: true, limits: w.limits.Queue(set.ID, set.Name),
		}
		queues, names[q.id] = append(queues, q), q.name
	}
	limits, err := limitsByQueue(ctx, &w.db.Session, names)
	if err != nil {
		return err
	}
	shares, err := sharesOf(ctx, &w.db.Session, slices.Collect(maps.Values(sets)))
	if err != nil {
		return err
	}
	for _, q := range queues {
		q.shareOut(shares[q.id])
		w.meetLimits(q, limits[q.id]) // before the first job
	}
	if err := w.fill(ctx); err != nil {
		return err
	}
	if err := w.lease.enter(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues = queues
	return nil
}
