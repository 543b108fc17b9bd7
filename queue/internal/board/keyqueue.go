package board

import (
	"cmp"
	"iter"
	"slices"
)

// A KeyQueue is the jobs of one key that are known here, in their order. Those that have begun, and
// those that are elsewhere, have a turn; behind them wait those that have been read. The first turn
// is the holder's: the others wait for it. The zero value is empty.
//
// Jobs that wait can be put back, which leaves them to a later read. From the first of these on all
// that reads return stays in its table as well, until a read is made for the key: so no job
// overtakes one that was put back.
type KeyQueue[J comparable] struct {
	turns   []Turn
	waiting []waiter[J]
	skipped int64 // the first of those that were put back; 0: none were
}

// A Turn is a job of a key queue that is not merely waiting. Its order does not change while the
// job fails and comes back, so that several that fail together keep it.
type Turn struct {
	ID     int64
	Away   bool // it is not in this worker's hands: checked out elsewhere, or until its retry
	parted int  // how often it has become so
}

type waiter[J comparable] struct {
	id, order int64 // when it was enqueued, or when it is due
	job       J
}

// Holder returns the turn of the job that the others wait for, if there is one.
func (q *KeyQueue[J]) Holder() (t Turn, ok bool) {
	if len(q.turns) == 0 {
		return t, false
	}
	return q.turns[0], true
}

// HeldBy reports whether a job is the one that the others wait for.
func (q *KeyQueue[J]) HeldBy(id int64) bool { return len(q.turns) > 0 && q.turns[0].ID == id }

// Turns returns the jobs that have begun or are elsewhere, in their order.
func (q *KeyQueue[J]) Turns() []Turn { return slices.Clone(q.turns) }

// turn returns where a job's turn is; -1: it has none.
func (q *KeyQueue[J]) turn(id int64) int {
	return slices.IndexFunc(q.turns, func(t Turn) bool { return t.ID == id })
}

// Empty reports that nothing is known of the key.
func (q *KeyQueue[J]) Empty() bool { return len(q.waiting) == 0 && len(q.turns) == 0 && q.skipped == 0 }

// Len returns how many jobs wait.
func (q *KeyQueue[J]) Len() int { return len(q.waiting) }

// Waiting returns the jobs that wait, in their order.
func (q *KeyQueue[J]) Waiting() iter.Seq[J] {
	return func(yield func(J) bool) {
		for _, w := range q.waiting {
			if !yield(w.job) {
				return
			}
		}
	}
}

// Wait has a job that was read wait for its turn. It returns true if the others wait for the job
// already: then it is their retry, and may start at once.
func (q *KeyQueue[J]) Wait(id, order int64, job J) (starts bool) {
	if q.HeldBy(id) {
		q.turns[0].Away = false
		return true
	}
	w := waiter[J]{id, order, job}
	at, _ := slices.BinarySearchFunc(q.waiting, w, func(a, b waiter[J]) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.id, b.id))
	})
	q.waiting = slices.Insert(q.waiting, at, w)
	return false
}

// Step takes the next job out that may start: it is here, and waits for no other. Call it when all
// of a read has been added, so that jobs are in order whatever order they came in.
func (q *KeyQueue[J]) Step() (job J, ok bool) {
	if len(q.turns) == 0 && q.mayFollow() {
		q.turns = append(q.turns, Turn{ID: q.waiting[0].id, Away: true})
	}
	if len(q.turns) == 0 || !q.turns[0].Away {
		return job, false
	}
	at := q.find(q.turns[0].ID)
	if at < 0 {
		return job, false
	}
	q.turns[0].Away = false
	return q.take(at), true
}

// mayFollow reports whether a job waits that is before those that were put back.
func (q *KeyQueue[J]) mayFollow() bool {
	return len(q.waiting) > 0 && (q.skipped == 0 || q.waiting[0].order < q.skipped)
}

// Join takes the job out that follows the first n turns, which begin, if it is here and may begin
// with them.
func (q *KeyQueue[J]) Join(n int, may func(J) bool) (job J, ok bool) {
	at := -1
	switch {
	case n >= len(q.turns) && q.mayFollow():
		at = 0
	case n < len(q.turns) && q.turns[n].Away: // it may have come back
		at = q.find(q.turns[n].ID)
	}
	if at < 0 || !may(q.waiting[at].job) {
		return job, false
	}
	if n < len(q.turns) {
		q.turns[n].Away = false
	} else {
		q.turns = append(q.turns, Turn{ID: q.waiting[at].id})
	}
	return q.take(at), true
}

// find returns where a job waits; -1: it does not.
func (q *KeyQueue[J]) find(id int64) int {
	return slices.IndexFunc(q.waiting, func(w waiter[J]) bool { return w.id == id })
}

// take takes a job out of those that wait.
func (q *KeyQueue[J]) take(at int) J {
	job := q.waiting[at].job
	if at == 0 {
		q.waiting[0] = waiter[J]{} // what is done is not kept in memory
		q.waiting = q.waiting[1:]
	} else {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	return job
}

// Remove takes a job out that waits.
func (q *KeyQueue[J]) Remove(job J) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w waiter[J]) bool { return w.job == job })
}

// Release ends the turn of a job, and tells whether the others waited for it.
func (q *KeyQueue[J]) Release(id int64) (held bool) {
	at := q.turn(id)
	if at >= 0 {
		q.turns = slices.Delete(q.turns, at, at+1)
	}
	return at == 0
}

// Hold keeps the others back for a job that is not here: it runs elsewhere, or waits for its retry.
// If there are several, they go one after the other, by their ids.
func (q *KeyQueue[J]) Hold(id int64) {
	if q.turn(id) >= 0 {
		return
	}
	at := len(q.turns)
	for at > 0 && q.turns[at-1].Away && q.turns[at-1].ID > id {
		at--
	}
	q.turns = slices.Insert(q.turns, at, Turn{ID: id, Away: true})
}

// HoldBehind keeps the others back for a job of this worker, behind the first turns for which f
// returns true.
func (q *KeyQueue[J]) HoldBehind(id int64, f func(id int64) bool) {
	if q.turn(id) >= 0 {
		return
	}
	at := 0
	for at < len(q.turns) && f(q.turns[at].ID) {
		at++
	}
	q.turns = slices.Insert(q.turns, at, Turn{ID: id})
}

// Part records that a job has left this worker's hands. It keeps its turn among those that have begun
// with it, or failed before.
func (q *KeyQueue[J]) Part(id int64) {
	if at := q.turn(id); at >= 0 {
		q.turns[at].Away = true
		q.turns[at].parted++
	}
}

// TakeIn records that a job is in this worker's hands, if the others wait for it.
func (q *KeyQueue[J]) TakeIn(id int64) {
	if q.HeldBy(id) {
		q.turns[0].Away = false
	}
}

// PutBack puts the jobs back that wait behind the first n, except for those that have a turn, and those
// that leave returns false for.
func (q *KeyQueue[J]) PutBack(n int, leave func(J) bool) {
	if len(q.waiting) <= n {
		return
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(w waiter[J]) bool {
		if n--; n >= 0 || q.turn(w.id) >= 0 || !leave(w.job) {
			return false
		}
		q.skipped = least(q.skipped, w.id)
		return true
	})
}

// GiveWay puts all jobs back as PutBack does, and first of all the holder, which has not begun. It
// returns false if others have begun with it, or are elsewhere: it stays.
func (q *KeyQueue[J]) GiveWay(id int64, leave func(J) bool) bool {
	if len(q.turns) != 1 || !q.HeldBy(id) {
		return false
	}
	q.PutBack(0, leave)
	q.turns, q.skipped = nil, least(q.skipped, id)
	return true
}

// Skipped returns the first job that was put back, and so is to be read again; 0: none was.
func (q *KeyQueue[J]) Skipped() int64 { return q.skipped }

// Wants reports whether the jobs are to be read that were put back: fewer than n wait that go before
// these.
func (q *KeyQueue[J]) Wants(n int) bool {
	if q.skipped == 0 {
		return false
	}
	before, _ := slices.BinarySearchFunc(q.waiting, q.skipped, func(w waiter[J], id int64) int { return cmp.Compare(w.order, id) })
	return before < n
}

// SkipFrom records that the jobs up to an id have been read again that were put back; 0: all were.
func (q *KeyQueue[J]) SkipFrom(id int64) { q.skipped = id }

// Skips reports whether a job stays in its table that a read of the ids above after has returned: it
// is behind one that was put back. If more is wanted of the key, a read that began before that one
// brings all of them.
func (q *KeyQueue[J]) Skips(id, after int64, wanted bool) bool {
	if q.skipped == 0 || id < q.skipped {
		return false
	}
	if wanted && after < q.skipped {
		q.skipped = 0
		return false
	}
	return true
}

// least is the lesser of two ids, of which the first may be 0: none.
func least(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}
