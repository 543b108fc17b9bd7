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

// How rows of jobs get their ids, and are written.
//
// An id is drawn when there is a connection, and in a transaction that has begun: so it
// is not older than its statement, however long the caller has waited for either.

// write gives rows their ids and inserts them, all or none. When it is called again they
// get other ids: whoever does so knows that nothing was committed.
func (c *Client) write(ctx context.Context, rows []jobRow) error {
	if !c.atOnce(rows) {
		return c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			if err := c.name(ctx, tx, rows); err != nil {
				return err
			}
			return c.insertAll(ctx, tx, rows)
		})
	}
	return c.db.WithConn(ctx, func(ctx context.Context, on *sqlrun.Session) error {
		if err := c.name(ctx, on, rows); err != nil {
			return err
		}
		return c.insert(ctx, on, rows)
	})
}

// copyFrom is from how many rows on a bulk load takes less time than an INSERT.
const copyFrom = 200

// errMixed means that of rows that were to be inserted by one statement some are ready and
// some are delayed: their time came meanwhile.
var errMixed = errors.New("some of the jobs are due already")

// insert inserts rows that have ids by one statement.
func (c *Client) insert(ctx context.Context, on *sqlrun.Session, rows []jobRow) error {
	if slices.ContainsFunc(rows, func(r jobRow) bool { return (r.runAt != 0) != (rows[0].runAt != 0) }) {
		return errMixed
	}
	all := stored(rows)
	fits := len(rows) <= store.Chunk && weightOf(rows) <= sqlrun.MaxBytes || len(rows) == 1
	if !fits || len(rows) >= copyFrom && rows[0].runAt == 0 && c.db.CanCopy() {
		columns, copied := all.Copied()
		err := on.Copy(ctx, "job", columns, copied)
		if !fits || !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	_, err := on.Exec(ctx, store.Insertion(all), sqlrun.Args{"rows": all})
	return err
}

// writeAnew is write, and draws other ids if one of them is taken: all of them, since part
// of it would turn a key's order round.
func (c *Client) writeAnew(ctx context.Context, rows []jobRow) error {
	for tries := 0; ; tries++ {
		err := c.write(ctx, rows)
		if errors.Is(err, errors.ErrUnsupported) {
			continue // the driver cannot copy, which is known by now
		}
		if err == nil || !c.taken(err) || tries == 3 {
			return err
		}
	}
}

// taken reports whether an error says that an id is taken. Then another process may have the same
// salt.
func (c *Client) taken(err error) bool {
	is := c.db.Dialect.Duplicate(err)
	if is {
		c.salt.Change()
	}
	return is
}

// atOnce reports whether one statement can insert rows.
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
	return len(rows) <= store.Chunk && weightOf(rows) <= sqlrun.MaxBytes || c.db.CanCopy()
}

// weight is how many bytes a row takes in an INSERT at the most.
func (r *jobRow) weight() int {
	return 256 + 2*len(r.Payload) + 2*len(r.Kind) + 2*len(r.Key) + len(r.Endpoint)
}

func weightOf(rows []jobRow) (n int) {
	for i := range rows {
		n += rows[i].weight()
	}
	return n
}

// name gives rows their ids, and with them their blocks and times. What is sent on the
// session after it waits for nothing.
func (c *Client) name(ctx context.Context, on *sqlrun.Session, rows []jobRow) error {
	err := c.ready(ctx, on, rows)
	if err == nil {
		c.number(rows)
	}
	return err
}

// ready reads what has to be known before rows get their ids.
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

// refresh reads the settings of rows' queues again that are so old that a generation of
// blocks may have begun which they do not tell of: it took long to get a connection.
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

// number draws the ids.
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

// waits reports whether a job is not ready at a moment, in µs since 1970.
func (j *Job) waits(now int64) bool {
	return j.Delay > 0 || !j.RunAt.IsZero() && j.RunAt.UnixMicro() > now
}

// insertAll inserts rows in a transaction, except for those whose unique keys are in use.
func (c *Client) insertAll(ctx context.Context, tx *sqlrun.Session, rows []jobRow) error {
	return c.insertBy(ctx, tx, rows, store.Insertion)
}

// insertBy is insertAll by the statements that of picks.
func (c *Client) insertBy(ctx context.Context, tx *sqlrun.Session, rows []jobRow, of func(store.Jobs) *sqlrun.Stmt) error {
	if anyTied(rows) {
		err := enter(ctx, tx, rows)
		if err == nil {
			rows, err = claimKeys(ctx, tx, rows)
		}
		if err == nil {
			err = addTo(ctx, tx, rows)
		}
		if err != nil {
			return err
		}
	}
	ready, delayed := split(rows)
	for _, part := range slices.Concat(parts(ready), parts(delayed)) {
		all := stored(part)
		if _, err := tx.Exec(ctx, of(all), sqlrun.Args{"rows": all, "channel": c.bells.channel()}); err != nil {
			return err
		}
	}
	return nil
}

// parts divides rows by what one statement inserts.
func parts(rows []jobRow) (all [][]jobRow) {
	for part := range store.InParts(rows, (*jobRow).weight) {
		all = append(all, part)
	}
	return all
}

// split tells ready jobs from delayed ones. Most often all are ready.
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
