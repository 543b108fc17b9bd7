package admin

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// maxOther is how many jobs of a block Unknown looks at.
const maxOther = 1000

// An UnknownKind is a kind of job that none of its queue's workers handles.
type UnknownKind struct {
	Queue, Kind string
	Jobs        int // ready or due ones among the first 1000 of each block
}

// Unknown lists up to limit kinds of waiting jobs that no worker of their queue handles. Queues
// without workers are left out.
func (c *Client) Unknown(ctx context.Context, limit int) (all []UnknownKind, err error) {
	type row struct{ queue, kinds string }
	rows, err := sqlrun.Select(ctx, &c.db.Session, store.Announced, nil, func(rows *sql.Rows) (r row, err error) {
		var kinds sql.NullString
		err = rows.Scan(&r.queue, &kinds)
		r.kinds = kinds.String
		return r, err
	})
	if err != nil {
		return nil, err
	}
	known := map[string]map[string]bool{} // nil: all
	for _, r := range rows {
		kinds, some := store.Kinds(r.kinds)
		of, seen := known[r.queue]
		switch {
		case !some:
			known[r.queue] = nil
			continue
		case seen && of == nil:
			continue
		case !seen:
			of = map[string]bool{}
			known[r.queue] = of
		}
		for _, kind := range kinds {
			of[kind] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if known[name] == nil {
			continue
		}
		found, err := c.unknownIn(ctx, name, known[name])
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if all = append(all, found...); len(all) >= limit {
			return all[:limit], nil
		}
	}
	return all, nil
}

// unknownIn lists those of a queue that are not among some kinds.
func (c *Client) unknownIn(ctx context.Context, name string, kinds map[string]bool) (all []UnknownKind, err error) {
	q, err := c.read(ctx, name)
	if err != nil {
		return nil, err
	}
	blocks, err := c.blocks(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	list, jobs := append(slices.Collect(maps.Keys(kinds)), ""), map[string]int{} // no kind is empty, and a list is not
	for _, b := range blocks {
		args := sqlrun.Args{"queue": q.ID, "divided": b.Divided, "limit": maxOther, "kinds": list}
		found, err := sqlrun.Select(ctx, &c.db.Session, store.OtherKinds, args, func(rows *sql.Rows) (u UnknownKind, err error) {
			return u, rows.Scan(&u.Kind, &u.Jobs)
		})
		if err != nil {
			return nil, err
		}
		for _, u := range found {
			jobs[u.Kind] += u.Jobs
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(jobs)) {
		all = append(all, UnknownKind{name, kind, jobs[kind]})
	}
	return all, nil
}
