package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
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

	// maxPast is how many of its past names a process knows, and pastFor for how long it knows
	// which jobs did not end it.
	maxPast = 100
	pastFor = time.Hour
)

// Bygones are what a process remembers of the time before it lost its lease.
type bygones struct {
	charges []string                        // for its previous names
	proven  map[store.JobID]instant.Instant // jobs that did not end it, and since when that is known
}

// chargeOf returns the text for a worker's name in a job's charges: its end, which is random.
func chargeOf(node string) string {
	name := strings.Join(strings.Fields(node[strings.LastIndexByte(node, ':')+1:]), "")
	return name[max(0, len(name)-maxCharge):]
}

// maxCharge and maxCharges bound the length of a charge and of all charges of a job.
const maxCharge, maxCharges = 32, 400

// charge adds a worker's loss to a job's charges. If they become too long the first are dropped, and
// can no longer be taken back.
func charge(charged, node string) string {
	all := append(strings.Fields(charged), chargeOf(node))
	for len(strings.Join(all, " ")) > maxCharges {
		all = all[1:]
	}
	return strings.Join(all, " ")
}

// lost records the name under which a worker has lost its lease. mu is held.
func (p *bygones) lost(node string) {
	p.charges = append(p.charges, chargeOf(node))
	p.charges = p.charges[max(0, len(p.charges)-maxPast):]
	for id, at := range p.proven {
		if since(at) > pastFor {
			delete(p.proven, id)
		}
	}
}

// clear records that a job did not end this process. mu is held.
func (p *bygones) clear(d *Delivery) {
	if p.proven == nil {
		p.proven = map[store.JobID]instant.Instant{}
	}
	p.proven[d.at()] = instant.Now()
}

// clears records a job that ends after it was lost: it did not end the process. mu is held.
func (run *runner) clears(d *Delivery) {
	if d.ctx.cause != nil && errors.Is(d.ctx.cause, ErrLost) && d.began != 0 {
		run.past.clear(d)
	}
}

// knows reports whether a process knows that a job did not end it under a previous name. mu is held.
func (p *bygones) knows(id store.JobID, node string) bool {
	_, proven := p.proven[id]
	return proven && slices.Contains(p.charges, chargeOf(node))
}

// mine splits the charges of a job into the number of those against this process, and the others. It
// also reports whether this process knows that the job did not end it. mu is held.
func (p *bygones) mine(id store.JobID, charged string) (n int, others string, proven bool) {
	all := strings.Fields(charged)
	rest := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return slices.Contains(p.charges, c) })
	_, proven = p.proven[id]
	return len(all) - len(rest), strings.Join(rest, " "), proven
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
