package queue

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// tryConclude is conclude, but leaves failures to the workers, which retry a little later.
func (c *Client) tryConclude(ctx context.Context, ids ...int64) {
	if err := c.conclude(ctx, ids...); err != nil {
		c.opt.Logger.Warn("checking for ended groups failed; a worker will do it", "groups", ids, "err", err)
	}
}

// conclude ends those of some groups that can end, and enqueues their callbacks.
func (c *Client) conclude(ctx context.Context, ids ...int64) error {
	var errs []error
	for part := range slices.Chunk(ids, store.Chunk) {
		rows := make([]sqlrun.Args, len(part))
		for i, id := range part {
			rows[i] = sqlrun.Args{"group_id": id}
		}
		ripe, err := sqlrun.Select(ctx, &c.dbOf(ctx).Session, store.RipeGroups, sqlrun.Args{"rows": rows}, store.ScanID)
		errs = append(errs, err)
		for _, id := range ripe {
			errs = append(errs, c.endOne(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// concludeAny does so with groups that nobody attends to any more. A group that cannot be ended
// does not block the others.
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

// errGroupHeld means that a group cannot be ended yet.
var errGroupHeld = errors.New("another transaction holds the group's row")

// endOne ends a group if it can end, and enqueues its callback in the same transaction.
func (c *Client) endOne(ctx context.Context, id int64) error {
	wake := func() {}
	err := c.inGroup(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		wake = func() {}
		args := sqlrun.Args{"group": id}
		var text sql.NullString
		err := tx.Get(ctx, store.LockGroup, args, &text)
		if errors.Is(err, sql.ErrNoRows) {
			return errGroupHeld // or somebody has just ended it, and it is not ripe any more
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
			args["error"] = sqlrun.CleanText(err.Error(), 4000)
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

// purgeGroups removes groups that were kept long enough.
func (c *Client) purgeGroups(ctx context.Context) error {
	old, err := sqlrun.Select(ctx, &c.db.Session, store.OldGroups, sqlrun.Args{"limit": store.Chunk}, store.ScanID)
	if err != nil {
		return err
	}
groups:
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
			n, err := c.db.Exec(ctx, store.PurgeMembers, sqlrun.Args{"group": id, "ids": jobs})
			if err != nil {
				return err
			}
			if n == 0 {
				continue groups // others hold them, or remove them
			}
		}
		if _, err := c.db.Exec(ctx, store.PurgeGroup, sqlrun.Args{"group": id}); err != nil {
			return err
		}
	}
	return nil
}
