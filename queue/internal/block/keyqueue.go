package block

import (
	"cmp"
	"iter"
	"slices"
)

// A KeyQueue holds the known jobs of one key, in their order. Jobs that have begun, and jobs
// that are elsewhere, have a turn; behind them wait jobs that have been read. The first turn is
// the holder's: the others wait for it. The zero value is empty.
//
// Waiting jobs can be put back, which leaves them to a later read. From the first of these on,
// everything that reads return stays in its table as well, until the key's own read: so no job
// overtakes one that was put back.
type KeyQueue[J comparable] struct {
	turns   []Turn
	waiting []waiter[J]
	skipped int64 // id of the first job that was put back; 0: none was
}

// A Turn is a job of a key queue that is not merely waiting. It keeps its order while the job
// fails and comes back, so that several jobs that fail together keep theirs.
type Turn struct {
	ID     int64
	Away   bool // it is checked out elsewhere, or waits for its retry
	parted int  // counts its departures
}

type waiter[J comparable] struct {
	id, order int64 // order: when it was enqueued, or when it is due
	job       J
}

// Holder returns the turn of the job that the others wait for, if any.
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

// turn returns the index of a job's turn, or -1.
func (q *KeyQueue[J]) turn(id int64) int {
	return slices.IndexFunc(q.turns, func(t Turn) bool { return t.ID == id })
}

// Empty reports whether no job of the key is known.
func (q *KeyQueue[J]) Empty() bool { return len(q.waiting) == 0 && len(q.turns) == 0 && q.skipped == 0 }

// Len returns the number of waiting jobs.
func (q *KeyQueue[J]) Len() int { return len(q.waiting) }

// Waiting iterates over the waiting jobs, in their order.
func (q *KeyQueue[J]) Waiting() iter.Seq[J] {
	return func(yield func(J) bool) {
		for _, w := range q.waiting {
			if !yield(w.job) {
				return
			}
		}
	}
}

// Wait adds a job that was read to those that wait for their turn. It returns true if the
// others already wait for this job: then this is its retry, and it may start at once.
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

// Step takes out the next job that may start: it is here and waits for no other. Call it when
// all jobs of a read have been added, so that they are in order however they came.
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

// mayFollow reports whether a job waits that precedes those that were put back.
func (q *KeyQueue[J]) mayFollow() bool {
	return len(q.waiting) > 0 && (q.skipped == 0 || q.waiting[0].order < q.skipped)
}

// Join takes out the job after the first n turns, if it is here and may begin with them.
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

// find returns the index of a waiting job, or -1.
func (q *KeyQueue[J]) find(id int64) int {
	return slices.IndexFunc(q.waiting, func(w waiter[J]) bool { return w.id == id })
}

// take removes a waiting job.
func (q *KeyQueue[J]) take(at int) J {
	job := q.waiting[at].job
	if at == 0 {
		q.waiting[0] = waiter[J]{} // release the memory of jobs that are done
		q.waiting = q.waiting[1:]
	} else {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	return job
}

// Remove removes a waiting job.
func (q *KeyQueue[J]) Remove(job J) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w waiter[J]) bool { return w.job == job })
}

// Release ends the turn of a job, and reports whether the others waited for it.
func (q *KeyQueue[J]) Release(id int64) (held bool) {
	at := q.turn(id)
	if at >= 0 {
		q.turns = slices.Delete(q.turns, at, at+1)
	}
	return at == 0
}

// Hold blocks the key for a job that is not here: it runs elsewhere, or waits for its retry.
// Several such jobs follow each other by their ids.
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

// HoldBehind blocks the key for a job of this worker, behind the leading turns for which f
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

// Part records that a job has left this worker. It keeps its turn among those that have begun
// with it, or failed before.
func (q *KeyQueue[J]) Part(id int64) {
	if at := q.turn(id); at >= 0 {
		q.turns[at].Away = true
		q.turns[at].parted++
	}
}

// TakeIn records that a job is now with this worker, if the others wait for it.
func (q *KeyQueue[J]) TakeIn(id int64) {
	if q.HeldBy(id) {
		q.turns[0].Away = false
	}
}

// PutBack puts back the waiting jobs behind the first n, except those that have a turn, and
// those for which leave returns false.
func (q *KeyQueue[J]) PutBack(n int, leave func(J) bool) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w waiter[J]) bool {
		if n--; n >= 0 || q.turn(w.id) >= 0 || !leave(w.job) {
			return false
		}
		q.skipped = Least(q.skipped, w.id)
		return true
	})
}

// GiveWay puts back all jobs as PutBack does, including the holder, which has not begun. It
// returns false if others have begun with the holder, or are elsewhere: then the holder stays.
func (q *KeyQueue[J]) GiveWay(id int64, leave func(J) bool) bool {
	if len(q.turns) != 1 || !q.HeldBy(id) {
		return false
	}
	q.PutBack(0, leave)
	q.turns, q.skipped = nil, Least(q.skipped, id)
	return true
}

// Skipped returns the first job that was put back, and so has to be read again; 0: none was.
func (q *KeyQueue[J]) Skipped() int64 { return q.skipped }

// Wants reports whether to read the jobs that were put back: fewer than n jobs wait before
// them.
func (q *KeyQueue[J]) Wants(n int) bool {
	if q.skipped == 0 {
		return false
	}
	before, _ := slices.BinarySearchFunc(q.waiting, q.skipped, func(w waiter[J], id int64) int { return cmp.Compare(w.order, id) })
	return before < n
}

// SkipFrom records that the jobs that were put back have been read again up to an id; 0 means
// all.
func (q *KeyQueue[J]) SkipFrom(id int64) { q.skipped = id }

// Skips reports whether a job that was returned by a read of the ids above after stays in its
// table: it is behind one that was put back. If more jobs of the key are wanted, a read that
// began before that one returns all of them.
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

// Least returns the lesser of two ids, where 0 for the first means none.
func Least(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}
