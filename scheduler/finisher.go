package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A finisher batches outcomes: those that arrive while one statement is under way go into the next.
// So a single outcome waits for nobody, and many cost little each.
//
// While this daemon claims a lane, outcomes wait, for up to [holdFor]: all that is due should start
// before the first outcomes are written.
type finisher struct {
	mu      sync.Mutex
	waiting []*pendingOutcome
	writing bool
	holds   int           // number of lanes being claimed
	free    chan struct{} // closed when the last of them has been claimed; nil: there is none
	holdFor time.Duration // default: holdFor

	end func([]*pendingOutcome) // writes outcomes from which something follows
}

// holdFor bounds how long an outcome waits for claims. If the daemon is killed meanwhile, another one
// executes the run again.
const holdFor = 50 * time.Millisecond

// hold makes outcomes wait until release is called.
func (f *finisher) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holds++; f.holds == 1 {
		f.free = make(chan struct{})
	}
}

func (f *finisher) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holds--; f.holds == 0 {
		close(f.free)
		f.free = nil
	}
}

// gather lets other outcomes join the batch.
func (f *finisher) gather() {
	f.mu.Lock()
	free := f.free
	f.mu.Unlock()
	if free == nil {
		runtime.Gosched() // outcomes of other runnable goroutines
		return
	}
	timer := time.NewTimer(cmp.Or(f.holdFor, holdFor))
	defer timer.Stop()
	select {
	case <-free:
	case <-timer.C:
	}
}

// A pendingOutcome is an outcome that waits to be written.
type pendingOutcome struct {
	row    finishRow
	ending *ending // what else is to be written; nil: nothing
	again  bool    // another transaction had locked its row the last time
	ctx    context.Context
	mine   bool
	err    error
	done   chan struct{}
}

// finish writes one outcome and reports whether the run was still this daemon's. If another transaction has locked its row, the
// error is an errHeld; the caller tries again.
func (f *finisher) finish(ctx context.Context, db *dialect.DB, row finishRow, again bool, end *ending) (mine bool, err error) {
	one := &pendingOutcome{row: row, ending: end, again: again, ctx: ctx, done: make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, one)
	if !f.writing {
		f.writing = true
		go f.write(db)
	}
	f.mu.Unlock()
	<-one.done
	return one.mine, one.err
}

func (f *finisher) write(db *dialect.DB) {
	for {
		f.gather()
		f.mu.Lock()
		all := f.waiting
		f.waiting = nil
		f.writing = len(all) > 0
		f.mu.Unlock()
		if len(all) == 0 {
			return
		}
		var held, ending []*pendingOutcome
		all = slices.DeleteFunc(all, func(one *pendingOutcome) bool {
			switch {
			case one.ending != nil:
				ending = append(ending, one)
			case one.again:
				held = append(held, one)
			default:
				return false
			}
			return true
		})
		f.writeEach(db, all, f.writePart)
		f.writeEach(db, held, f.writeFree)
		f.writeEach(db, ending, func(_ *dialect.DB, part []*pendingOutcome) { f.end(part) })
	}
}

func (f *finisher) writeEach(db *dialect.DB, all []*pendingOutcome, write func(*dialect.DB, []*pendingOutcome)) {
	for part := range slices.Chunk(all, batch) {
		write(db, part)
		for _, one := range part {
			close(one.done)
		}
	}
}

// errMixed rolls back a batch of which some outcomes could not be written.
var errMixed = errors.New("some runs were lost, or are locked")

// writePart writes a batch of outcomes with one statement. If that misses a run, it begins anew with those that it
// can write.
func (f *finisher) writePart(db *dialect.DB, part []*pendingOutcome) {
	rows := make(finishRows, len(part))
	for i, one := range part {
		rows[i] = one.row
	}
	ctx := part[0].ctx
	err := db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		n, err := tx.Exec(ctx, finish, sqlrun.Args{"rows": rows})
		if err == nil && n != int64(len(part)) {
			err = errMixed
		}
		return err
	})
	for _, one := range part {
		one.mine, one.err = err == nil, err
	}
	if errors.Is(err, errMixed) || err != nil && len(part) > 1 {
		f.writeFree(db, part)
	}
}

// writeFree writes those of a batch of outcomes whose runs are still this daemon's and not locked by others. If
// that fails, it writes them one by one.
func (f *finisher) writeFree(db *dialect.DB, part []*pendingOutcome) {
	ids := make([]int64, len(part))
	for i, one := range part {
		ids[i] = one.row.id
	}
	err := db.ShortTx(part[0].ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		mine, err := ownersOf(ctx, tx, free, ids)
		if err != nil {
			return err
		}
		there := mine
		if len(mine) < len(part) {
			if there, err = ownersOf(ctx, tx, seen, ids); err != nil {
				return err
			}
		}
		var rows finishRows
		for _, one := range part {
			one.mine, one.err = mine[one.row.id].runs(one.row.claim), nil
			if one.mine {
				rows = append(rows, one.row)
			} else if there[one.row.id].runs(one.row.claim) {
				one.err = heldRun(one.row.id)
			}
		}
		if len(rows) == 0 {
			return nil
		}
		n, err := tx.Exec(ctx, finish, sqlrun.Args{"rows": rows})
		if err == nil && n != int64(len(rows)) {
			err = fmt.Errorf("%d of %d locked runs were finished", n, len(rows))
		}
		return err
	})
	switch {
	case err == nil:
	case len(part) == 1:
		part[0].mine, part[0].err = false, err
	default:
		for i := range part {
			f.writeFree(db, part[i:i+1])
		}
	}
}
