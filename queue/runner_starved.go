package queue

import (
	"context"
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
)

// Handlers that hold transactions, and need another connection beside them, may wait for each other: each
// holds one, and the pool has no more. What this package does for them needs no connection of theirs (see
// spared), but a statement of their own does. Nobody can resolve that from outside, so the worker says it:
// in the log, and in its rows of queue_worker, where doctor and the metrics find it.

const (
	// starvedAfter is how long no handler may begin or end, and no connection be free, for handlers to
	// count as waiting for each other's connections.
	starvedAfter = 10 * time.Second
)

// watchPool asks the pool for a connection while no handler begins or ends. It waits in line with them.
func (run *runner) watchPool(ctx context.Context) {
	for range pace.Ticks(ctx, run.starves/10) {
		if run.standsStill() {
			run.askPool(ctx)
		}
	}
}

// standsStill reports whether handlers run, and none has begun or ended for a while.
func (run *runner) standsStill() bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.goesOn() {
		run.fed(instant.Now())
	}
	return run.starved.taken > 0 && since(run.starved.since) >= run.starves/2
}

// goesOn reports whether a handler has begun or ended since the last call. mu is held.
func (run *runner) goesOn() bool {
	s, taken := &run.starved, 0
	for _, unit := range run.slots {
		if unit != nil {
			taken++
		}
	}
	same := run.begun == s.begun && taken == s.taken
	s.begun, s.taken = run.begun, taken
	return !same
}

// fed records that handlers go on. mu is held.
func (run *runner) fed(at instant.Instant) {
	s := &run.starved
	if s.since = at; s.is {
		s.is = false
		run.log.Info("handlers get connections again")
	}
}

// askPool asks the pool for a connection for as long as handlers may wait for one.
func (run *runner) askPool(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, run.starves/2)
	defer cancel()
	c, err := run.c.db.Pool().Conn(bounded)
	if err == nil {
		_ = c.Close()
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	s, at := &run.starved, instant.Now()
	switch {
	case err == nil, run.goesOn():
		run.fed(at)
		return
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
		return
	}
	if s.is = true; s.warned != 0 && at.Sub(s.warned) < time.Minute {
		return
	}
	s.warned = at
	run.log.Warn("no handler has ended, and no connection of the pool was free: handlers that hold a transaction and need a second connection "+
		"wait for each other; make the pool larger (dialect.Options.MaxConns, SetMaxOpenConns, or pgxpool's MaxConns), make Concurrency less, "+
		"or do all of a handler's work in its transaction, as EnqueueTx does",
		"for", at.Sub(s.since), "running", s.taken, "handlers", len(run.slots),
		"pool", run.c.db.MaxConns(), "pool_needed", len(run.slots)+run.opt.Connections+4)
}
