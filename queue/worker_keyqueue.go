package queue

import "github.com/dbcron/dbcron/queue/internal/board"

// A keyQueue is the jobs of one key that are known here, in their order, and what keeps them from
// beginning beside that. It is guarded by its worker's mu.
type keyQueue struct {
	board.KeyQueue[*Delivery]
	key     string
	limiter *limiter // for which all of its jobs were put back; nil: none
	resumed bool     // it is in its block's list of such

	gathers *gathering // the batch that the holder waits for, and how many it may have
	most    int
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
	if l.Wait(d.ID, d.order, d) {
		b.admit(d)
		return
	}
	if _, held := l.Holder(); held || l.Len() > 1 {
		b.shed(d)
	}
	if g := l.gathers; g != nil && !g.full && l.fills() {
		g.full = true
		w := b.q.w
		w.handlerOf(g.jobs[0].Kind).full++ // d may be of another kind, which ends the batch
		w.work.Signal()
	}
}

// fills reports whether those that wait fill the batch of the holder, or another kind's job
// ends it.
func (l *keyQueue) fills() bool {
	kind := l.gathers.jobs[0].Kind
	n := 0
	for d := range l.Waiting() {
		if n++; n >= l.most-1 || d.Kind != kind || d.bare {
			return true
		}
	}
	return l.most == 1
}

// join takes the job that follows the first n of a key queue, which begin, if it may begin with
// them: it is here, and of their kind.
func (l *keyQueue) join(n int, kind string) *Delivery {
	d, _ := l.Join(n, func(d *Delivery) bool { return d.Kind == kind && !d.bare && d.from != tableRunning })
	return d
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
	if d, ok := l.Step(); ok {
		b.admit(d)
	}
}

// release ends the turn of a key's job: the next may go.
func (b *block) release(key string, id int64) {
	l := b.keyQueues[key]
	if l == nil || !l.Release(id) {
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
	if l.Empty() {
		if b.keyQueues[l.key] == l {
			delete(b.keyQueues, l.key)
		}
		return
	}
	b.step(l)
}

// hold keeps a key's jobs back: one that is not here is running elsewhere, or waits
// for its retry.
func (b *block) hold(key string, id int64) { b.keyQueue(key).Hold(id) }

// part records that a job that others wait for has left this worker's hands.
func (b *block) part(key string, id int64) {
	if l := b.keyQueues[key]; l != nil {
		l.Part(id)
	}
}

// roundOf reports whether a checked out job may be taken in: one that others of its key
// go before may not yet.
func (b *block) roundOf(key string, id int64) bool {
	if key == "" {
		return true
	}
	b.hold(key, id)
	return b.keyQueues[key].HeldBy(id)
}

// takeIn records that the job that the others wait for is in this worker's hands.
func (b *block) takeIn(key string, id int64) {
	if l := b.keyQueues[key]; l != nil {
		l.TakeIn(id)
	}
}
