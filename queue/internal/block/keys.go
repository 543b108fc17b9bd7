package block

import (
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A keyQueue is the known jobs of one line, in their order, and what else keeps them from beginning.
type keyQueue struct {
	KeyQueue[*Job]
	key     string
	limiter *limit.Limiter // the limit for which all of its jobs were put back; nil: none
	resumed bool           // it is in its block's list of these
	batch   gathering      // for which the holder waits
}

// A gathering is a batch of a key for which its first job waits: it is full when so many jobs wait, or one that
// cannot belong to it.
type gathering struct {
	by   int64 // the job that waits for others
	most int
	kind string
	full func() // called when it is; nil: it is full, or there is none
}

// A HeldKey is a job, and the line that waits for it.
type HeldKey struct {
	ID   int64
	Line string
}

// keyQueue returns the queue of a line.
func (b *Block) keyQueue(line string) *keyQueue {
	l := b.keyQueues[line]
	if l == nil {
		l = &keyQueue{key: line}
		b.keyQueues[line] = l
	}
	return l
}

// wait makes a job that was read wait for its turn, unless the others already wait for this
// job: then it is its retry.
func (b *Block) wait(j *Job) {
	l := b.keyQueue(j.Line)
	if l.Wait(j.ID, j.Order, j) {
		b.makeStartable(j)
		return
	}
	if _, held := l.Holder(); held || l.Len() > 1 {
		b.shed(j)
	}
	if full := l.batch.full; full != nil && l.fills() {
		l.batch.full = nil
		full()
	}
}

// fills reports whether the waiting jobs fill the holder's batch, or one of another kind
// completes it.
func (l *keyQueue) fills() bool {
	n := 0
	for j := range l.Waiting() {
		if n++; n >= l.batch.most-1 || j.Kind != l.batch.kind || j.Unloaded {
			return true
		}
	}
	return false
}

// Gather has the holder of its line, which has begun, wait for others of the line that fill a batch of a maximum
// size: full is called once they do. It returns true if they do already, or none can come.
func (b *Block) Gather(j *Job, most int, full func()) (already bool) {
	l := b.keyQueues[j.Line]
	if j.Line == "" || l == nil || most == 1 {
		return true
	}
	l.batch = gathering{j.ID, most, j.Kind, nil}
	if l.fills() {
		return true
	}
	l.batch.full = full
	return false
}

// StopGathering ends that: the batch begins. It returns whether others may begin with it.
func (b *Block) StopGathering(j *Job) (more bool) {
	l := b.keyQueues[j.Line]
	if j.Line == "" || l == nil || !l.HeldBy(j.ID) || j.Tried || b.Gone || b.Leaving || b.Suspect > 0 || len(b.doubted) > 0 {
		return false // a job that may have crashed a worker begins alone
	}
	l.batch = gathering{}
	return true
}

// Join begins the job of a line behind the first n, which are beginning, if it may begin with them: it is here, and of
// their kind. Otherwise it returns nil.
func (b *Block) Join(line string, n int, kind string) *Job {
	j, ok := b.keyQueues[line].Join(n, func(j *Job) bool {
		return j.Kind == kind && !j.Unloaded && j.From != store.AmongRunning && b.gate(j) == nil && b.dear(j) == nil
	})
	if ok {
		b.Engage(j)
	}
	return j
}

// Settle starts the first job of each line that waits for no other. Call it when all jobs of a
// read have been added, so that they are in order whatever order they came in.
func (b *Block) Settle() {
	for _, l := range b.keyQueues {
		b.step(l)
	}
}

// step starts the next job of a line, if it is here and waits for no other.
func (b *Block) step(l *keyQueue) {
	if j, ok := l.Step(); ok {
		b.makeStartable(j)
	}
}

// Release ends the turn of a line's job: the next one may begin.
func (b *Block) Release(line string, id int64) {
	l := b.keyQueues[line]
	if l == nil {
		return
	}
	if l.batch.by == id { // and not before it, after one whose end was refused
		l.batch = gathering{}
	}
	if !l.Release(id) {
		return
	}
	b.tidy(l)
	b.readOn(l)
}

// ReleaseIfHeld lets the next job of a line begin after one whose row is gone. Either somebody
// has cancelled that job, or the block is lost: its new holder runs the job, and this worker
// does not know yet that its lease is over, because the database's clock was set. So the line
// waits until the block's fence was read. Whoever has changed the row has taken the block
// before, so a later read of the fence shows that.
func (b *Block) ReleaseIfHeld(line string, id int64) {
	if line == "" || b.Gone {
		return
	}
	b.Hold(line, id)
	b.Missed = append(b.Missed, HeldKey{id, line})
	b.host.Owes()
}

// tidy starts the next job of a line, and removes the key queue if it is empty.
func (b *Block) tidy(l *keyQueue) {
	if l.Empty() {
		if b.keyQueues[l.key] == l {
			delete(b.keyQueues, l.key)
		}
		return
	}
	b.step(l)
}

// Hold blocks a line for a job that is not here: it runs elsewhere, or waits for its retry.
func (b *Block) Hold(line string, id int64) { b.keyQueue(line).Hold(id) }

// Part records that a job that others wait for has left this worker.
func (b *Block) Part(line string, id int64) {
	if l := b.keyQueues[line]; l != nil {
		l.Part(id)
	}
}

// TakesTurn reports whether a checked out job may be taken in: not while earlier jobs of its line
// wait.
func (b *Block) TakesTurn(line string, id int64) bool {
	if line == "" {
		return true
	}
	b.Hold(line, id)
	return b.keyQueues[line].HeldBy(id)
}

// TakeIn records that the job that the others wait for is now with this worker.
func (b *Block) TakeIn(line string, id int64) {
	if l := b.keyQueues[line]; l != nil {
		l.TakeIn(id)
	}
}

// Holder returns the turn of the job that the others of a line wait for, if there is one.
func (b *Block) Holder(line string) (t Turn, ok bool) {
	if l := b.keyQueues[line]; l != nil {
		return l.Holder()
	}
	return t, false
}

// Lines returns the lines of which jobs are known.
func (b *Block) Lines() (all []string) {
	for line := range b.keyQueues {
		all = append(all, line)
	}
	return all
}

// Turns returns the jobs of a line that have begun, or are elsewhere, in their order.
func (b *Block) Turns(line string) []Turn {
	if l := b.keyQueues[line]; l != nil {
		return l.Turns()
	}
	return nil
}

// WaitingOf returns how many jobs of a line were read and wait for others.
func (b *Block) WaitingOf(line string) int {
	if l := b.keyQueues[line]; l != nil {
		return l.Len()
	}
	return 0
}

// HasPutBack reports whether jobs of a line were put back, and are to be read again.
func (b *Block) HasPutBack(line string) bool {
	l := b.keyQueues[line]
	return l != nil && l.Skipped() != 0
}
