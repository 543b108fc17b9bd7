package queue

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A lost lease is no evidence against a job. Others cannot tell a process that has died from one that
// the database does not hear, so they take over what it had, and charge its jobs with a death. A
// process that lives, and comes back under a new name, corrects that:
//
//   - It ends its old name before it takes a new one. What still belongs to the old name is then taken
//     over without a charge, and on no other trial than before.
//   - It takes back what others have charged under its old names meanwhile. The row of a checked out job
//     says whose losses it was charged with.
//   - Jobs that ended in it, or that it ran for long enough to trust them, are trusted, even if it could
//     not write that.
//
// What was taken back counts as a loss. A job whose workers lose their leases again and again may be
// the reason, and becomes a dead letter after maxLosses times MaxCrashes losses.
//
// A job that others would convict waits for appealFor before that, since the process may come back.

const (
	// maxLosses times the queue's MaxCrashes is after how many losses of leases, of processes that
	// lived, a job is a dead letter.
	maxLosses = 16

	// appealFor is how long a job waits before it becomes a dead letter for deaths, unless a test
	// is in haste: long enough for a process that finds the database again to say that it lives.
	appealFor = 5 * time.Second
)

// clears records a job that ends after it was lost: it did not end the process. mu is held.
func (run *runner) clears(d *Delivery) {
	if d.ctx.cause != nil && errors.Is(d.ctx.cause, ErrLost) && d.began != 0 {
		run.past.clear(d)
	}
}

// takeBack takes back what the jobs of a queue were charged with on account of this process.
func (run *runner) takeBack(ctx context.Context, q *workQueue, running []runningRow) error {
	for i := range running {
		r := &running[i]
		if r.charged == "" {
			continue
		}
		run.mu.Lock()
		n, others, proven := run.past.mine(r.at(q), r.charged)
		run.mu.Unlock()
		if n == 0 {
			continue
		}
		clears := 0
		if proven {
			clears = 1
		}
		done, err := run.db.Exec(ctx, store.TakeBack, sqlrun.Args{
			"queue": q.id, "divided": r.divided, "id": r.id, "had": r.charged, "n": n, "charged": others, "clears": clears,
		})
		if err != nil {
			return err
		}
		if done == 0 {
			continue // others have written meanwhile; next time
		}
		r.crashes, r.losses, r.charged = r.crashes-n, r.losses+n, others
		if proven && (r.state == rowSuspect || r.state == rowAlone) {
			r.state = rowRunning
		}
		run.log.Info("a job was charged with the death of this worker, which lives; took that back", "queue", q.name, "kind", r.kind, "id", r.id)
		run.mu.Lock()
		if d := run.out[r.at(q)]; d != nil && r.lockBy == run.lease.node {
			d.Crashes = r.crashes
		}
		run.mu.Unlock()
	}
	return nil
}

// appeals reports whether a job that would become a dead letter for deaths waits, since the process
// that had it may come back.
func (run *runner) appeals(q *workQueue, r *runningRow) bool {
	if !run.guilty(q, r.found()) || r.losses >= maxLosses*q.set.MaxCrashes {
		return false
	}
	if q.convicts == nil {
		q.convicts = map[conviction]instant.Instant{}
	}
	of, at := conviction{r.at(q), r.lockBy}, instant.Now()
	if q.convicts[of] == 0 {
		maps.DeleteFunc(q.convicts, func(_ conviction, since instant.Instant) bool { return at.Sub(since) > pastFor })
		q.convicts[of] = at
	}
	return at.Sub(q.convicts[of]) < run.appeal
}
