package queue

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// tryConclude does what conclude does. If that fails, workers do it a little later.
func (c *Client) tryConclude(ctx context.Context, ids ...int64) {
	if err := c.conclude(ctx, ids...); err != nil {
		c.opt.Logger.Warn("checking for ended groups failed; a worker will do it", "groups", ids, "err", err)
	}
}

// conclude ends groups that have come to their end, and enqueues their callbacks.
func (c *Client) conclude(ctx context.Context, ids ...int64) error {
	var errs []error
	for part := range slices.Chunk(ids, store.Chunk) {
		rows := make([]sqlrun.Args, len(part))
		for i, id := range part {
			rows[i] = sqlrun.Args{"crew": id}
		}
		ripe, err := sqlrun.Select(ctx, &c.dbOf(ctx).Session, store.RipeGroups, sqlrun.Args{"rows": rows}, store.ScanID)
		errs = append(errs, err)
		for _, id := range ripe {
			errs = append(errs, c.endOne(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// concludeAny does so with groups that nobody looks after any more. One that cannot be ended keeps
// no other from its end.
func (c *Client) concludeAny(ctx context.Context) error {
	for {
		ripe, err := sqlrun.Select(ctx, &c.dbOf(ctx).Session, store.RipeAny, sqlrun.Args{"limit": store.Chunk}, store.ScanID)
		if err != nil {
			return err
		}
		var errs []error
		for _, id := range ripe {
			err := c.endOne(ctx, id)
			if errs = append(errs, err); err != nil && (ctx.Err() != nil || c.db.Dialect.Unavailable(err)) {
				break
			}
		}
		if err := errors.Join(errs...); err != nil || len(ripe) < store.Chunk {
			return err
		}
	}
}

// endOne ends a group if it has come to its end, and enqueues its callback with that.
func (c *Client) endOne(ctx context.Context, id int64) error {
	wake := func() {}
	err := c.inGroup(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		wake = func() {}
		args := sqlrun.Args{"group": id}
		var text sql.NullString
		err := tx.Get(ctx, store.LockGroup, args, &text)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if n, err := tx.Exec(ctx, store.EndGroup, args); err != nil || n == 0 {
			return err
		}
		job, err := readCallback(text.String)
		if err == nil && job != nil {
			job.callbackOf = id
			_, wake, err = c.EnqueueIn(ctx, tx, *job)
		}
		if errors.Is(err, ErrInvalid) || errors.Is(err, ErrDeleted) {
			c.opt.Logger.Error("a group's callback cannot be enqueued", "group", id, "error", err)
			args["error"] = limitText(err.Error(), 4000)
			wake = func() {}
			_, err = tx.Exec(ctx, store.AccuseGroup, args)
		}
		return err
	})
	if err == nil {
		wake()
	}
	return err
}

// purgeGroups removes groups whose time is over.
func (c *Client) purgeGroups(ctx context.Context) error {
	old, err := sqlrun.Select(ctx, &c.db.Session, store.OldGroups, sqlrun.Args{"limit": store.Chunk}, store.ScanID)
	if err != nil {
		return err
	}
	for _, id := range old {
		for {
			args := sqlrun.Args{"group": id, "limit": store.Chunk}
			jobs, err := sqlrun.Select(ctx, &c.db.Session, store.SomeMembers, args, store.ScanID)
			if err != nil {
				return err
			}
			if len(jobs) == 0 {
				break
			}
			args = sqlrun.Args{"group": id, "ids": jobs, "n": len(jobs)}
			if _, err := c.db.Exec(ctx, store.PurgeMembers, args); err != nil {
				return err
			}
		}
		if _, err := c.db.Exec(ctx, store.PurgeGroup, sqlrun.Args{"group": id}); err != nil {
			return err
		}
	}
	return nil
}

// A concluder looks after the groups of the jobs that a worker has ended. The worker's
// mutex guards it.
type concluder struct {
	groups map[int64]bool // whose end may have come
	busy   bool           // some are looked at
	wake   chan struct{}
	died   chan struct{} // a process died, perhaps between a job's end and its group's
}

// concludeEvery is how often it is looked whether a group's end was missed, since a
// process died between a job's end and the group's.
const concludeEvery = time.Minute

// noteEnd records that a job has ended, and with it perhaps its group. mu is held.
func (box *outbox) noteEnd(d *Delivery) {
	if d.Group != 0 {
		box.ends.groups[d.Group] = true
		box.nudgeEnds()
	}
}

func (box *outbox) nudgeEnds() { signal(box.ends.wake) }

// heardEnds has groups looked at that somebody says may have ended; none: any.
func (w *Worker) heardEnds(ids []int64) {
	if len(ids) == 0 {
		signal(w.ends.died)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		w.ends.groups[id] = true
	}
	w.nudgeEnds()
}

// signal tells a goroutine that may be busy, once.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// conclude ends groups whose jobs have ended here, and from time to time others.
func (w *Worker) conclude(ctx context.Context) {
	trouble := trouble.New(w.log, "checking for ended groups")
	tick := time.NewTicker(concludeEvery)
	defer tick.Stop()
	any := true
	for {
		err := w.concludeEnds(ctx)
		if any {
			missed := w.c.concludeAny(ctx)
			any, err = missed != nil, errors.Join(err, missed)
		}
		if ctx.Err() == nil && trouble.Note(err) > 0 {
			time.AfterFunc(time.Second, w.nudgeEnds)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.ends.wake:
		case <-w.ends.died:
			any = true
		case <-tick.C:
			any = true
		}
	}
}

// concludeEnds ends groups whose jobs have ended here.
func (w *Worker) concludeEnds(ctx context.Context) error {
	w.mu.Lock()
	all := slices.Sorted(maps.Keys(w.ends.groups))
	clear(w.ends.groups)
	w.ends.busy = len(all) > 0
	w.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	err := w.c.conclude(ctx, all...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends.busy = false
	if err != nil {
		for _, id := range all {
			w.ends.groups[id] = true
		}
	}
	return err
}

// concludeLast ends them when the worker ends. If that fails, others do it.
func (w *Worker) concludeLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := w.concludeEnds(ctx); err != nil {
		w.log.Warn("checking for ended groups failed; another worker will do it", "err", err)
	}
}
