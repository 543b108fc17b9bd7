package block

import (
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Jobs that wait for the limit of their tenant: they are held. As jobs at the limit of a kind they are in a list of their limiter;
// but there may be very many tenants. So the lists whose limiters let jobs pass are in a heap, and the next of these jobs is at its
// top. Who opens a limiter says so: see [Block.ResumeOf]. Those that are closed again leave the heap when they come to its top.
//
// In a fair queue a held job keeps its turn, and counts as one that its tenant has here: it waits for others of its tenant.
//
// All held jobs of a block together are bounded as those at the limit of a kind are. If they are too many, each tenant keeps an
// equal part, and perhaps nothing; the others are put back: see backlog.go.

// waits are the jobs that wait for the limits of their tenants.
type waits struct {
	byTenant map[*limit.Limiter]*heldList
	open     Heap[*heldList] // those whose limiters have let jobs pass when last asked
	holding  int             // jobs
}

// A heldList is the jobs of a tenant.
type heldList struct {
	list
	limiter *limit.Limiter
	spot    Spot
}

// Spot returns the list's position among those whose limiters are open.
func (w *heldList) Spot() *Spot { return &w.spot }

// first returns the place of its first job.
func (w *heldList) first() (at Place, ok bool) {
	for p := range w.list {
		if at, ok = w.First(p); ok {
			return at, true
		}
	}
	return at, false
}

// hold keeps a job that was taken out of the lists until the limiter of its tenant lets it pass.
func (b *Block) hold(g *limit.Limiter, j *Job) {
	w := b.byTenant[g]
	if w == nil {
		if b.byTenant == nil {
			b.byTenant = map[*limit.Limiter]*heldList{}
		}
		w = &heldList{limiter: g}
		b.byTenant[g] = w
	}
	w.Put(j.Place(), j)
	j.held = w
	b.holding++
	b.unpick(j)
	if w.spot.Listed {
		b.list(w)
	}
	g.Ask()
	b.host.Held(j)
	b.shed(j)
	if b.terms.PerCaller && !b.Serving { // as in setAside
		b.evict()
	}
}

// unpick no longer counts a job among those that were picked: a limit holds it, and others may be picked.
func (b *Block) unpick(j *Job) {
	if j.Picked && j.guest != nil {
		b.fair.picked--
	}
	j.Picked = false
}

// list puts a list with jobs into the heap.
func (b *Block) list(w *heldList) {
	if first, ok := w.first(); ok {
		b.open.Set(w, first)
	}
}

// firstHeld returns the list with the first of the held jobs that may pass their limiters, or nil.
func (b *Block) firstHeld() *heldList {
	for len(b.open) > 0 {
		w := b.open[0]
		first, ok := w.first()
		switch {
		case !ok || !b.host.Opens(w.limiter):
			b.open.Drop()
		case first != w.spot.First:
			b.open.Set(w, first)
		default:
			return w
		}
	}
	return nil
}

// fromHeld takes the first job out of the list at the top of the heap.
func (b *Block) fromHeld(w *heldList) *Job {
	j := w.Take(w.spot.First.Priority)
	b.lets(j, w)
	if w.Len() == 0 {
		b.open.Drop()
	} else {
		b.list(w)
	}
	return j
}

// lets no longer counts a job that has left its list.
func (b *Block) lets(j *Job, w *heldList) {
	j.held = nil
	b.holding--
	if w.Len() > 0 || b.byTenant[w.limiter] != w {
		return
	}
	delete(b.byTenant, w.limiter) // an empty list that is still in the heap leaves it at the top
	if b.HeldAt(w.limiter) > 0 {
		w.limiter.Ask() // for those that were put back, for which nobody has asked
	}
}

// unhold takes a job out of its list, if it is in one.
func (b *Block) unhold(j *Job) {
	if w := j.held; w != nil && w.Remove(j.Priority, j) {
		b.lets(j, w)
	}
}

// takeHeld takes all held jobs out of their lists.
func (b *Block) takeHeld() (all []*Job) {
	for _, w := range b.heldLists() {
		for j := range w.All() {
			j.held = nil
			all = append(all, j)
		}
	}
	b.waits = waits{}
	return all
}

func (b *Block) heldLists() (all []*list) {
	for _, w := range b.byTenant {
		all = append(all, &w.list)
	}
	return all
}

// reorderHeld gives held jobs new turns: see Share.
func (b *Block) reorderHeld() {
	b.open = nil
	for _, w := range b.byTenant {
		w.spot = Spot{}
		b.reorder(&w.list, func(j *Job) {
			b.comes(j)
			b.unpick(j)
		})
		if b.host.Opens(w.limiter) {
			b.list(w)
		}
	}
}

// HeldAt returns how many jobs wait at the limiter of a tenant. If there are only such as were put back, it counts one.
func (b *Block) HeldAt(g *limit.Limiter) int {
	if w := b.byTenant[g]; w != nil {
		return w.Len()
	}
	if b.skipped[g] != 0 || len(b.gated[g]) > 0 {
		return 1
	}
	return 0
}

// AskTenants says again at which limiters of tenants jobs wait.
func (b *Block) AskTenants() {
	ask := func(g *limit.Limiter) {
		if g.Tenant != "" {
			g.Ask()
		}
	}
	for g := range b.byTenant {
		ask(g)
	}
	for g := range b.skipped {
		ask(g)
	}
	for g := range b.gated {
		ask(g)
	}
}

// HoldsTenants reports whether jobs wait for limits, or were put back that do.
func (b *Block) HoldsTenants() bool { return len(b.byTenant)+len(b.skipped)+len(b.gated) > 0 }

// HeldOpen returns of how many tenants there are held jobs that may pass, at most.
func (b *Block) HeldOpen() int { return len(b.open) }

// HeldSoon returns how many held jobs may pass their limiters, and how many more when their rates let them: all of them, or at least
// as many as are asked for.
func (b *Block) HeldSoon(most int) (open, soon int) {
	count := func(g *limit.Limiter, n int) {
		if n = min(n, g.Vacant()); b.host.Opens(g) {
			open += n
		} else {
			soon += n
		}
	}
	for g, w := range b.byTenant {
		if open+soon >= most {
			return open, soon
		}
		count(g, w.Len())
	}
	for g := range b.skipped { // those of which no job is left here: they are read again when the limiter opens
		if open+soon >= most {
			break
		}
		if g.Tenant != "" && b.byTenant[g] == nil {
			count(g, 1)
		}
	}
	return open, soon
}

// resumeTenant has the held jobs of a tenant go on, and those that were put back read again once few are left.
func (b *Block) resumeTenant(g *limit.Limiter) (any bool) {
	n := 0
	if w := b.byTenant[g]; w != nil {
		n = w.Len()
		b.list(w)
	}
	if b.skipped[g] != 0 && n <= b.portion()/4 {
		b.rereadTenants(g)
	}
	return n > 0 || b.skipped[g] != 0
}

// ResumeTenants does so for all tenants whose limiters let jobs pass: the limits have changed.
func (b *Block) ResumeTenants() {
	for g := range b.byTenant {
		if b.host.Opens(g) {
			b.resumeTenant(g)
		}
	}
	for g := range b.skipped {
		if g.Tenant != "" && b.host.Opens(g) {
			b.rereadTenants(g)
			return
		}
	}
}

// rereadTenants schedules a read of the jobs that were put back of a tenant, and of all whose limiters let jobs pass: one
// read is for all of them.
func (b *Block) rereadTenants(g *limit.Limiter) {
	least := b.skipped[g]
	delete(b.skipped, g)
	for other, first := range b.skipped {
		if other.Tenant != "" && b.host.Opens(other) {
			delete(b.skipped, other)
			least = min(least, first)
		}
	}
	b.ReadFrom(least)
}

// portion is how many jobs of a tenant are kept when there are too many.
func (b *Block) portion() int { return b.fill() / 2 / max(1, len(b.byTenant)) }

// evictHeld puts back held jobs of tenants that have more than their part, if there are too many.
func (b *Block) evictHeld() {
	if b.holding < b.fill() && len(b.seen) < 100*b.terms.Batch {
		return
	}
	keep := b.portion()
	for g, w := range b.byTenant {
		if w.Len() <= keep || b.host.Opens(g) {
			continue
		}
		left := keep
		w.RemoveFunc(func(j *Job) bool {
			if left--; left >= 0 || j.From != store.AmongReady || !b.makesWay(j, g) {
				return false
			}
			if b.skipped == nil {
				b.skipped = map[*limit.Limiter]int64{}
			}
			b.skipped[g] = Least(b.skipped[g], j.ID)
			b.giveBack(j)
			b.skip(j)
			b.holding--
			j.held = nil
			return true
		})
		if w.Len() == 0 {
			delete(b.byTenant, g)
		}
	}
}
