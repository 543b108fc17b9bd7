package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// How refusals are shown to people: a line in the log, from time to time, and a row for each
// refused job. A worker writes these rows in separate transactions. Nothing depends on them: if
// they cannot be written, there is still the log.

const (
	tellEvery   = time.Minute     // interval between updates of a row while its job is refused
	staleRecord = 5 * tellEvery   // the age at which a row's worker counts as gone
	lookAtBook  = 5 * time.Second // interval between checks for rows to write
)

// sweepRefusals removes the rows of workers that are gone.
func (c *Client) sweepRefusals(ctx context.Context) error {
	_, err := c.db.Exec(ctx, store.SweepRefused, sqlrun.Args{"since": -staleRecord.Microseconds()})
	return err
}

// A refusalBook is what a worker reports about its refusals. The worker's mutex guards it.
type refusalBook struct {
	*core
	lease *nodeLease
	turn  turn
	all   map[store.JobID]*refusal // current refusals
	gone  map[store.JobID]string   // rows to remove, and the worker's name in them
	wake  chan struct{}

	stuck map[*tenure]map[int64]*refusal // delayed jobs that cannot be moved to another block, by id
}

// noteRefusal records that a job was refused again. mu is held.
func (book *refusalBook) noteRefusal(r *refusal) {
	id := r.d().at()
	r.untold++
	if book.all[id] != r {
		if len(book.all) < maxLogged {
			log := book.log.With("queue", r.d().Queue, "block", r.d().b.divided, "kind", r.d().Kind, "id", r.d().ID)
			r.trouble = trouble.New(log, "recording the outcome of a job ("+r.what()+")")
		}
		book.all[id] = r
		delete(book.gone, id)
		signal(book.wake)
	}
	if r.trouble != nil {
		r.trouble.Note(r.Err)
	}
}

// forgetRefusal records that a job is no longer refused. mu is held.
func (book *refusalBook) forgetRefusal(r *refusal) {
	id := r.d().at()
	if book.all[id] != r {
		return
	}
	if r.trouble != nil {
		r.trouble.Note(nil)
	}
	delete(book.all, id)
	if r.told != 0 {
		book.gone[id] = r.node
		signal(book.wake)
	}
}

// keepBook writes the rows.
func (book *refusalBook) keepBook(ctx context.Context) {
	trouble := trouble.New(book.log, "noting which jobs the database refuses")
	tick := time.NewTicker(lookAtBook)
	defer tick.Stop()
	for {
		if err := book.writeBook(ctx); ctx.Err() == nil {
			trouble.Note(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-book.wake:
		case <-tick.C:
		}
	}
}

// closeBook removes the rows when the worker ends: whoever gets its jobs writes new ones.
func (book *refusalBook) closeBook(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	book.mu.Lock()
	for _, r := range slices.Collect(maps.Values(book.all)) {
		book.forgetRefusal(r)
	}
	book.mu.Unlock()
	if err := book.writeBook(ctx); err != nil {
		book.log.Warn("rows of refused jobs could not be removed; they expire in a few minutes", "err", err)
	}
}

// writeBook writes the rows that are due, and removes those of jobs that are no longer refused.
// A row that cannot be written does not block others, and is retried at its next time.
func (book *refusalBook) writeBook(ctx context.Context) error {
	type row struct {
		id   store.JobID
		args sqlrun.Args
	}
	end, err := book.turn.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	var put, gone []row
	book.mu.Lock()
	at, node := instant.Now(), book.lease.node
	for id, r := range book.all {
		if node == "" || r.told != 0 && at.Sub(r.told) < tellEvery {
			continue
		}
		put = append(put, row{id, sqlrun.Args{
			"queue": id.Queue, "divided": id.Divided, "id": id.ID, "kind": r.d().Kind, "what": r.what(), "error": limitText(r.Err.Error(), 4000),
			"node": node, "tries": r.untold,
		}})
		r.told, r.untold, r.node = at, 0, node
	}
	for id, name := range book.gone {
		gone = append(gone, row{id, sqlrun.Args{"queue": id.Queue, "divided": id.Divided, "id": id.ID, "node": name}})
	}
	book.mu.Unlock()
	var errs []error
	for _, r := range put {
		n, err := book.db.Exec(ctx, store.AgainRefused, r.args)
		if err == nil && n == 0 {
			_, err = book.db.Exec(ctx, store.AddRefused, r.args)
		}
		errs = append(errs, err)
	}
	for _, r := range gone {
		_, err := book.db.Exec(ctx, store.EndRefused, r.args)
		errs = append(errs, err)
		if err == nil || !book.db.Dialect.Unavailable(err) {
			book.mu.Lock()
			delete(book.gone, r.id)
			book.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
