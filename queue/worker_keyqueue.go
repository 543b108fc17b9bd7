package queue

import (
	"github.com/dbcron/dbcron/queue/internal/board"
	"github.com/dbcron/dbcron/queue/internal/limit"
)

// A keyQueue is the known jobs of one key, in their order, and what else keeps them from
// beginning. Its worker's mu guards it.
type keyQueue struct {
	board.KeyQueue[*Delivery]
	key     string
	limiter *limit.Limiter // the limit for which all of its jobs were put back; nil: none
	resumed bool           // it is in its block's list of these

	gathers *gathering // the batch for which the holder waits, and its maximum size
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

// wait makes a job that was read wait for its turn, unless the others already wait for this
// job: then it is its retry.
func (b *block) wait(d *Delivery) {
	l := b.keyQueue(d.line())
	if l.Wait(d.ID, d.order, d) {
		b.makeStartable(d)
		return
	}
	if _, held := l.Holder(); held || l.Len() > 1 {
		b.shed(d)
	}
	if g := l.gathers; g != nil && !g.full && l.fills() {
		g.full = true
		w := b.q.w
		w.handlerOf(g.jobs[0].Kind).full++ // d may be of another kind, which completes the batch
		w.work.Signal()
	}
}

// fills reports whether the waiting jobs fill the holder's batch, or one of another kind
// completes it.
func (l *keyQueue) fills() bool {
	kind := l.gathers.jobs[0].Kind
	n := 0
	for d := range l.Waiting() {
		if n++; n >= l.most-1 || d.Kind != kind || d.unloaded {
			return true
		}
	}
	return l.most == 1
}

// join takes the job behind the first n of a key, which are beginning, if it may begin with
// them: it is here, and of their kind.
func (l *keyQueue) join(n int, kind string) *Delivery {
	d, _ := l.Join(n, func(d *Delivery) bool { return d.Kind == kind && !d.unloaded && d.from != tableRunning })
	return d
}

// settle starts the first job of each key that waits for no other. Call it when all jobs of a
// read have been added, so that they are in order whatever order they came in.
func (b *block) settle() {
	for _, l := range b.keyQueues {
		b.step(l)
	}
}

// step starts the next job of a key, if it is here and waits for no other.
func (b *block) step(l *keyQueue) {
	if d, ok := l.Step(); ok {
		b.makeStartable(d)
	}
}

// release ends the turn of a key's job: the next one may begin.
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

// tidy starts the next job of a key, and removes the key queue if it is empty.
func (b *block) tidy(l *keyQueue) {
	if l.Empty() {
		if b.keyQueues[l.key] == l {
			delete(b.keyQueues, l.key)
		}
		return
	}
	b.step(l)
}

// hold blocks a key for a job that is not here: it runs elsewhere, or waits for its retry.
func (b *block) hold(key string, id int64) { b.keyQueue(key).Hold(id) }

// part records that a job that others wait for has left this worker.
func (b *block) part(key string, id int64) {
	if l := b.keyQueues[key]; l != nil {
		l.Part(id)
	}
}

// takesTurn reports whether a checked out job may be taken in: not while earlier jobs of its key
// wait.
func (b *block) takesTurn(key string, id int64) bool {
	if key == "" {
		return true
	}
	b.hold(key, id)
	return b.keyQueues[key].HeldBy(id)
}

// takeIn records that the job that the others wait for is now with this worker.
func (b *block) takeIn(key string, id int64) {
	if l := b.keyQueues[key]; l != nil {
		l.TakeIn(id)
	}
}
