package queue

import (
	"cmp"
	"slices"
)

// A keyQueue is the jobs of one key that are known here, in their order. Those that have
// begun, and those that are elsewhere, have a place; behind them wait those that have been
// read. The first place is the holder's: the others wait for it. It is guarded by its
// worker's mu.
type keyQueue struct {
	key     string
	places  []place
	waiting []*Delivery
	skipped int64    // the first of those that were put back; 0: none were
	limiter *limiter // for which all of them were; nil: none
	resumed bool     // it is in its block's list of such

	gathers *gathering // the batch that the holder waits for, and how many it may have
	most    int
}

// A place is where a job of a key queue stands that is not merely waiting. Its order does not
// change while the job fails and comes back, so that several that fail together keep it.
type place struct {
	id      int64
	foreign bool // it is not in this worker's hands: checked out elsewhere, or until its retry
	parted  int  // how often it has become so
}

// holder returns the place of the job that the others wait for; nil if there is none.
func (l *keyQueue) holder() *place {
	if len(l.places) == 0 {
		return nil
	}
	return &l.places[0]
}

// heldBy tells whether a job is the one that the others wait for.
func (l *keyQueue) heldBy(id int64) bool { return len(l.places) > 0 && l.places[0].id == id }

// place returns the place of a job; -1 if it has none.
func (l *keyQueue) place(id int64) int {
	return slices.IndexFunc(l.places, func(p place) bool { return p.id == id })
}

// fetch takes a job out of those that wait; nil if it is not among them.
func (l *keyQueue) fetch(id int64) *Delivery {
	at := slices.IndexFunc(l.waiting, func(d *Delivery) bool { return d.ID == id })
	if at < 0 {
		return nil
	}
	d := l.waiting[at]
	if at == 0 {
		l.waiting = l.waiting[1:]
	} else {
		l.waiting = slices.Delete(l.waiting, at, at+1)
	}
	return d
}

// keyQueue returns the queue of a key.
func (b *block) keyQueue(key string) *keyQueue {
	l := b.keyQueues[key]
	if l == nil {
		l = &keyQueue{key: key}
		b.keyQueues[key] = l
	}
	return l
}

// wait lets a job that was read wait for its turn, unless the others wait for it: it
// is their retry.
func (b *block) wait(d *Delivery) {
	l := b.keyQueue(d.line())
	if l.heldBy(d.ID) {
		l.places[0].foreign = false
		b.admit(d)
		return
	}
	at, _ := slices.BinarySearchFunc(l.waiting, d, inOrder)
	l.waiting = slices.Insert(l.waiting, at, d)
	if len(l.places) > 0 || len(l.waiting) > 1 {
		b.shed(d)
	}
	if g := l.gathers; g != nil && !g.full && l.fills() {
		g.full = true
		w := b.q.w
		w.handlerOf(g.jobs[0].Kind).full++ // d may be of another kind, which ends the batch
		w.work.Signal()
	}
}

// fills tells whether those that wait fill the batch of the holder, or another kind's job
// ends it.
func (l *keyQueue) fills() bool {
	kind := l.gathers.jobs[0].Kind
	n := 0
	for _, d := range l.waiting {
		if n++; n >= l.most-1 || d.Kind != kind || d.bare {
			return true
		}
	}
	return l.most == 1
}

// join takes the job that follows the first n of a key queue, which begin, if it may begin with
// them: it is here, and of their kind.
func (l *keyQueue) join(n int, kind string) *Delivery {
	var d *Delivery
	switch {
	case n < len(l.places):
		at := slices.IndexFunc(l.waiting, func(d *Delivery) bool { return d.ID == l.places[n].id })
		if at >= 0 && l.places[n].foreign { // it has come back
			d = l.waiting[at]
		}
	case len(l.waiting) > 0 && (l.skipped == 0 || l.waiting[0].order < l.skipped):
		d = l.waiting[0]
	}
	if d == nil || d.Kind != kind || d.bare || d.from == tableRunning {
		return nil
	}
	l.fetch(d.ID)
	if n < len(l.places) {
		l.places[n].foreign = false
	} else {
		l.places = append(l.places, place{id: d.ID})
	}
	return d
}

// inOrder compares jobs of a key: by when they were enqueued, or when they are due.
func inOrder(a, b *Delivery) int {
	return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.ID, b.ID))
}

// settle lets the first of each key queue go that waits for nobody: called when all of a
// read has been added, so that its jobs are in order whatever order they came in.
func (b *block) settle() {
	for _, l := range b.keyQueues {
		b.step(l)
	}
}

// step lets the next of a key queue go, if it is here and does not wait for another.
func (b *block) step(l *keyQueue) {
	if len(l.places) == 0 && len(l.waiting) > 0 && (l.skipped == 0 || l.waiting[0].order < l.skipped) {
		l.places = append(l.places, place{id: l.waiting[0].ID, foreign: true})
	}
	p := l.holder()
	if p == nil || !p.foreign {
		return
	}
	if d := l.fetch(p.id); d != nil {
		p.foreign = false
		b.admit(d)
	}
}

// release ends the turn of a key's job: the next may go.
func (b *block) release(key string, id int64) {
	l := b.keyQueues[key]
	if l == nil {
		return
	}
	at := l.place(id)
	if at < 0 {
		return
	}
	l.places = slices.Delete(l.places, at, at+1)
	if at > 0 {
		return
	}
	l.gathers = nil
	b.tidy(l)
	if b.needs(l) {
		b.resume(l)
	}
}

// tidy lets the next of a key queue go, and removes the key queue if nothing is left of it.
func (b *block) tidy(l *keyQueue) {
	if len(l.waiting) == 0 && len(l.places) == 0 && l.skipped == 0 {
		if b.keyQueues[l.key] == l {
			delete(b.keyQueues, l.key)
		}
		return
	}
	b.step(l)
}

// hold keeps a key's jobs back: one that is not here is running elsewhere, or waits
// for its retry. If several are, they go one after the other, by their ids.
func (b *block) hold(key string, id int64) {
	l := b.keyQueue(key)
	if l.place(id) >= 0 {
		return
	}
	at := len(l.places)
	for at > 0 && l.places[at-1].foreign && l.places[at-1].id > id {
		at--
	}
	l.places = slices.Insert(l.places, at, place{id: id, foreign: true})
}

// part notes that a job that others wait for has left this worker's hands. It keeps its
// place among those that have begun with it, or failed before.
func (b *block) part(key string, id int64) {
	if l := b.keyQueues[key]; l != nil {
		if at := l.place(id); at >= 0 {
			l.places[at].foreign = true
			l.places[at].parted++
		}
	}
}

// roundOf tells whether a checked out job may be taken in: one that others of its key
// go before may not yet.
func (b *block) roundOf(key string, id int64) bool {
	if key == "" {
		return true
	}
	b.hold(key, id)
	return b.keyQueues[key].heldBy(id)
}

// takeIn notes that the job that the others wait for is in this worker's hands.
func (b *block) takeIn(key string, id int64) {
	if l := b.keyQueues[key]; l != nil && l.heldBy(id) {
		l.places[0].foreign = false
	}
}
