package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// How job rows get their ids and are written.
//
// An id is drawn once there is a connection, and in a transaction that has begun. So it is not
// older than its statement, however long the caller has waited for either.

// write gives rows their ids and inserts them, all or none, atOnce with one statement. Calling it again
// draws new ids: do so only if nothing was committed.
func (c *Client) write(ctx context.Context, rows []jobRow, atOnce bool) error {
	if !atOnce {
		return c.dbOf(ctx).ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			if err := c.name(ctx, tx, rows); err != nil {
				return err
			}
			return c.insertAll(ctx, tx, rows)
		})
	}
	return c.dbOf(ctx).WithConn(ctx, func(ctx context.Context, on *sqlrun.Session) error {
		if err := c.name(ctx, on, rows); err != nil {
			return err
		}
		return c.insert(ctx, on, rows)
	})
}

// copyFrom is the number of rows from which a bulk load is faster than an INSERT.
const copyFrom = 200

// errMixed means that the rows for one statement are partly ready and partly delayed: some became
// due meanwhile.
var errMixed = errors.New("some of the jobs are due already")

// insert inserts rows that have ids, with one statement.
func (c *Client) insert(ctx context.Context, on *sqlrun.Session, rows []jobRow) error {
	if slices.ContainsFunc(rows, func(r jobRow) bool { return (r.runAt != 0) != (rows[0].runAt != 0) }) {
		return errMixed
	}
	fits := len(rows) <= store.Chunk && weightOf(rows) <= sqlrun.MaxBytes || len(rows) == 1
	if !fits || len(rows) >= copyFrom && rows[0].runAt == 0 && c.db.CanCopy() {
		columns, copied := store.Copied(len(rows), func(i int, j *store.Job) { rows[i].store(j) })
		err := on.Copy(ctx, "job", columns, copied)
		if !fits || !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	all := stored(rows)
	_, err := on.ExecWhole(ctx, store.Insertion(all), sqlrun.Args{"rows": all})
	return onlyTooLong(rows, err)
}

// onlyTooLong says of a statement that was too long that its only job is.
func onlyTooLong(rows []jobRow, err error) error {
	if len(rows) == 1 && errors.Is(err, sqlrun.ErrTooLong) {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return err
}

// writeAnew is write, and draws new ids for all rows if one id is taken. New ids for only some
// would change a key's order.
func (c *Client) writeAnew(ctx context.Context, rows []jobRow) error {
	atOnce := c.atOnce(rows)
	for tries := 0; ; tries++ {
		err := c.write(ctx, rows, atOnce)
		switch {
		case errors.Is(err, errors.ErrUnsupported): // now it is known that the driver cannot copy
			atOnce = c.atOnce(rows)
			continue
		case errors.Is(err, sqlrun.ErrTooLong) && atOnce && len(rows) > 1:
			atOnce = false
			continue
		}
		if err == nil || !c.taken(err) || tries == 3 {
			return err
		}
	}
}

// taken reports whether err means that an id is taken. Then another process may have the same salt.
func (c *Client) taken(err error) bool {
	is := c.db.Dialect.Duplicate(err)
	if is {
		c.salt.Change()
	}
	return is
}

// atOnce reports whether one statement can insert all rows.
func (c *Client) atOnce(rows []jobRow) bool {
	if anyTied(rows) {
		return false
	}
	if len(rows) == 1 {
		return true
	}
	if slices.ContainsFunc(rows, func(r jobRow) bool { return r.Delay > 0 || !r.RunAt.IsZero() }) {
		return false
	}
	return len(rows) <= store.Chunk && weightOf(rows) <= c.db.Roomy() || c.db.CanCopy()
}

// weight returns the maximum size of a row in an INSERT, in bytes.
func (r *jobRow) weight() int {
	return 256 + 2*len(r.Payload) + 2*len(r.Kind) + 2*len(r.Key) + len(r.Endpoint)
}

func weightOf(rows []jobRow) (n int) {
	for i := range rows {
		n += rows[i].weight()
	}
	return n
}

// name gives rows their ids, and so their blocks and times. The statement sent on the session next
// must wait for nothing.
func (c *Client) name(ctx context.Context, on *sqlrun.Session, rows []jobRow) error {
	err := c.ready(ctx, on, rows)
	if err == nil {
		c.number(rows)
	}
	return err
}

// ready reads everything that must be known before rows get their ids.
func (c *Client) ready(ctx context.Context, on *sqlrun.Session, rows []jobRow) error {
	err := c.fit(ctx, on, rows)
	if err == nil {
		err = c.refresh(ctx, on, rows)
	}
	if err == nil {
		err = c.clock.sync(ctx, on, instant.Now())
	}
	return c.db.Undone(err)
}

// fit returns an error if a payload is larger than the server takes in one statement.
func (c *Client) fit(ctx context.Context, on *sqlrun.Session, rows []jobRow) error {
	for i := range rows {
		j := rows[i].Job
		room, err := on.Room(ctx, 2*len(j.Payload))
		if err != nil {
			return err
		}
		if 2*len(j.Payload) > room && sqlrun.Quoted(j.Payload) > room {
			return ofMany(i, len(rows), fmt.Errorf("%w: payload: it has %d bytes, and the server takes %d in a statement; store it elsewhere and enqueue its name, or raise max_allowed_packet",
				ErrTooLarge, len(j.Payload), room))
		}
	}
	return nil
}

// refresh reads the settings of rows' queues again if they are too old, because getting a
// connection took long: a generation of blocks may have begun since.
func (c *Client) refresh(ctx context.Context, on *sqlrun.Session, rows []jobRow) error {
	if !stale(rows) {
		return nil
	}
	fresh := map[string]*store.Queue{}
	for i := range rows {
		name := rows[i].of.Name
		if fresh[name] == nil {
			q, err := c.readOn(ctx, on, name)
			if err != nil {
				return err
			}
			fresh[name] = q
		}
		rows[i].of = fresh[name]
	}
	return nil
}

// number draws the rows' ids.
func (c *Client) number(rows []jobRow) {
	first, now := c.clock.take(len(rows))
	for i := range rows {
		r := &rows[i]
		r.id, r.holder, r.runAt = c.salt.ID(first+int64(i)), 0, 0
		r.divided = r.of.Block(r.Key, r.id)
		switch {
		case r.Delay > 0:
			r.runAt = now + r.Delay.Microseconds()
		case r.waits(now):
			r.runAt = r.RunAt.UnixMicro()
		}
	}
	c.late.number(rows)
}

// waits reports whether a job is not yet ready at a time, in µs since 1970.
func (j *Job) waits(now int64) bool {
	return j.Delay > 0 || !j.RunAt.IsZero() && j.RunAt.UnixMicro() > now
}

// insertAll inserts rows in a transaction, except for those whose unique keys are in use.
func (c *Client) insertAll(ctx context.Context, tx *sqlrun.Session, rows []jobRow) error {
	return c.insertBy(ctx, tx, rows, store.Insertion)
}

// insertBy is insertAll with the statements that of picks.
func (c *Client) insertBy(ctx context.Context, tx *sqlrun.Session, rows []jobRow, of func(store.Jobs) *sqlrun.Stmt) error {
	if anyTied(rows) {
		err := enter(ctx, tx, rows)
		if err == nil {
			rows, err = claimKeys(ctx, tx, rows, store.ClaimKeys)
		}
		if err == nil {
			err = addTo(ctx, tx, rows)
		}
		if err != nil {
			return err
		}
	}
	return c.insertRows(ctx, tx, rows, of)
}

// insertRows inserts rows in a transaction with the statements that of picks.
func (c *Client) insertRows(ctx context.Context, tx *sqlrun.Session, rows []jobRow, of func(store.Jobs) *sqlrun.Stmt) error {
	ready, delayed := split(rows)
	for _, part := range slices.Concat(parts(ready), parts(delayed)) {
		all := stored(part)
		if _, err := tx.Exec(ctx, of(all), sqlrun.Args{"rows": all, "channel": c.bells.channel()}); err != nil {
			return onlyTooLong(part, err)
		}
	}
	return nil
}

// parts splits rows into parts of one statement each.
func parts(rows []jobRow) (all [][]jobRow) {
	for part := range store.InParts(rows, (*jobRow).weight) {
		all = append(all, part)
	}
	return all
}

// split separates ready jobs from delayed ones. Most often all are ready.
func split(rows []jobRow) (ready, delayed []jobRow) {
	for i := range rows {
		if rows[i].runAt != 0 {
			delayed = append(delayed, rows[i])
		}
	}
	if len(delayed) == 0 {
		return rows, nil
	}
	for i := range rows {
		if rows[i].runAt == 0 {
			ready = append(ready, rows[i])
		}
	}
	return ready, delayed
}
