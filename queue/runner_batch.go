package queue

import (
	"iter"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// everyHandler iterates over the handlers of all kinds. mu is held.
func (known *kindHandlers) everyHandler() iter.Seq[*kindHandler] {
	return func(yield func(*kindHandler) bool) {
		for _, h := range known.handlers {
			if !yield(h) {
				return
			}
		}
		if known.others != nil {
			yield(known.others)
		}
	}
}

// gather adds a job that has begun to a batch of its kind. It returns the batch if it is to run
// now. mu is held.
func (run *runner) gather(h *kindHandler, d *Delivery) []*Delivery {
	opt := h.batch
	if n := len(h.gathered); n > 0 && !opt.ByKey {
		g := h.gathered[n-1]
		g.jobs = append(g.jobs, d)
		if len(g.jobs) < opt.Max {
			return nil
		}
		return run.ripe(h, n-1)
	}
	g := &gathering{jobs: []*Delivery{d}, since: instant.Now()}
	h.gathered = append(h.gathered, g)
	run.gathers++
	switch {
	case opt.ByKey:
		g.full = d.b.Gather(&d.state, opt.Max, func() {
			g.full = true
			h.full++
			run.work.Signal()
		})
	case opt.Max == 1:
		g.full = true
	}
	if g.full {
		h.full++
	}
	if g.full || opt.ByKey && opt.Wait == 0 {
		return run.ripe(h, len(h.gathered)-1)
	}
	if opt.Wait > 0 {
		time.AfterFunc(opt.Wait, func() { // with mu, or a handler that is about to wait would miss it
			run.mu.Lock()
			defer run.mu.Unlock()
			run.work.Broadcast()
		})
	}
	return nil
}

// ripeBatch returns a batch that is full, or has waited long enough.
func (run *runner) ripeBatch() []*Delivery {
	if run.gathers == 0 || instant.Now() >= run.lease.deadline {
		return nil // once it is late, the lease is renewed, or its jobs are lost
	}
	for h := range run.everyHandler() {
		for i := 0; i < len(h.gathered); {
			g := h.gathered[i]
			if !g.full && instant.Now().Sub(g.since) < h.batch.Wait {
				if h.full == 0 {
					break // later ones are younger
				}
				i++
				continue
			}
			if batch := run.ripe(h, i); len(batch) > 0 {
				return batch
			}
		}
	}
	return nil
}

// ripe takes a batch. Jobs that were lost or cancelled meanwhile end. One that was checked out, since its
// block went to another worker, is still this worker's: nobody else would begin it.
func (run *runner) ripe(h *kindHandler, at int) (batch []*Delivery) {
	g := h.gathered[at]
	h.gathered = slices.Delete(h.gathered, at, at+1)
	run.gathers--
	if g.full {
		h.full--
	}
	for _, d := range g.jobs {
		switch {
		case d.ctx.over:
			run.end(d, d.ctx.cause, "")
		case d.b.Gone && d.state.From != tableRunning:
			run.exitLimits(d)
		default:
			batch = append(batch, d)
		}
	}
	if h.batch.ByKey && len(batch) > 0 {
		batch = append(batch, run.followers(batch[0], h.batch.Max-1)...)
	}
	return batch
}

// followers begins the jobs of a key that wait for the first one and may begin with it: those
// of its kind, up to the first of another kind.
func (run *runner) followers(first *Delivery, most int) (all []*Delivery) {
	b := first.b
	if !b.StopGathering(&first.state) {
		return nil
	}
	own, kind := b.q.limits.Own(), b.q.limiterOf(first.Kind)
	for len(all) < most && b.q.opens(own) && b.q.opens(kind) {
		j := b.Join(first.line(), 1+len(all), first.Kind)
		if j == nil {
			break
		}
		d := deliveryOf(j)
		run.begins(b, d, first.began)
		all = append(all, d)
	}
	return all
}

// mates returns the jobs of d's key that run in one batch with d, and d. mu is held.
func (slots *handlerSlots) mates(d *Delivery) []*Delivery {
	if batch := slots.batch(d); d.line() != "" && batch[0].line() == d.line() {
		return batch
	}
	return []*Delivery{d}
}
