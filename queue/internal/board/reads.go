package board

import (
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

const (
	// Window is how far back reads go for jobs that were committed late.
	Window = 2 * time.Second

	// LookEvery is how often reads go back to the horizon.
	LookEvery = time.Second
)

// A Cursor is an id of each priority.
type Cursor [Priorities + 1]int64

// Reads is the plan of what to read next of the ready jobs of a block. An id is drawn before its
// job is committed, so the ids above the cursor are not all that is new. The horizon closes the gap:
//
//	Every job with an id up to the horizon of its priority that was committed at most
//	Window after its id was drawn has been read.
//
// A read from the horizon, or from below it, that was sent at a time S returns all that
// was committed before S. Ids of times before S - Window were drawn before that time, and
// so committed before S, if they are to be in time: the read raises the horizon to
// S - Window, or to the last id that it returned if it was cut off. Nothing else raises it.
// So a look back begins where the last good one left off, whatever kept the worker from
// reading: a pause, a full worker, errors, a process that was stopped. While the cursor is
// above the horizon there may be jobs in between, and the block is looked at every
// LookEvery. A job of a key that is read has all those before it that are in time.
//
// What is committed later than Window is found by a look at the whole block, which comes
// every now and then; after an outage, since those who enqueue were stopped by it too; and
// when the database's clock was set, since ids of before and after cannot be compared.
//
// It is not safe for concurrent use.
type Reads struct {
	Dirty  bool  // there may be something new
	Full   bool  // the last read was cut off: there is more
	Unseen bool  // nothing has been read
	Told   bool  // there is something new that was not read since
	ReadTo Place // where the last read was cut off

	cursor  Cursor // the highest id read
	horizon Cursor // see above
	rung    bool   // there may be something new since the last read began
	late    bool   // and it is not certain that it is above the cursor

	Looked instant.Instant // when it was last read from the horizon
	Whole  instant.Instant // and from the beginning; 0: never, or not since an outage
	Shaken bool            // an outage may not be over yet
	Again  instant.Instant // when to read it from the beginning once more after an outage; 0: never

	passed map[int64]int // jobs above the horizon that stay in their table, and their priorities
}

// A Read is one that is to be made.
type Read struct {
	After Cursor
	Limit int
	Upto  int64 // ids up to here are committed, if they are in time

	Whole   bool // it is of all
	Routine bool // and only since its time had come, if it is
	Back    bool // it is of jobs that were put back
}

// Fetched is what a read has returned: how many rows, and the last one. They come by priority and id.
type Fetched struct {
	Rows int
	Last Place
}

// Cursor returns the highest ids that were read.
func (s *Reads) Cursor() Cursor { return s.cursor }

// Horizon returns up to where all jobs in time were read.
func (s *Reads) Horizon() Cursor { return s.horizon }

// Level tells that no job in time is missing below the cursor.
func (s *Reads) Level() bool { return s.cursor == s.below() }

// Rouse notes that there is something new, also if a read is under way.
func (s *Reads) Rouse() { s.Dirty, s.rung, s.Told = true, true, true }

// Ring notes that there may be something new that a read which is under way does not return.
func (s *Reads) Ring() { s.rung = true }

// Back has a read begin at the horizon, at once.
func (s *Reads) Back() { s.Dirty, s.late = true, true }

// Anew has all be read from the beginning.
func (s *Reads) Anew() { s.Dirty, s.Whole = true, 0 }

// Distrust has all be read from the beginning when there is reason to read, and once more when an outage is over
// for so long that all is committed that was under way.
func (s *Reads) Distrust() { s.Whole, s.Shaken = 0, true }

// From has jobs from an id on read once more.
func (s *Reads) From(id int64) {
	for p := range s.horizon {
		s.horizon[p] = min(s.horizon[p], id-1)
	}
	s.late = true
	s.Rouse() // also if a read is under way, from further on
}

// LookDue tells whether to look back: now and then while jobs may come below the cursor, and every
// so often at all of them. A block that is quiet is left to those who tell of new jobs.
func (s *Reads) LookDue(at instant.Instant, every time.Duration) bool {
	return s.wholeDue(at, every) || at.Sub(s.Looked) >= LookEvery && !s.Level()
}

// Due tells whether there is reason to read.
func (s *Reads) Due(at instant.Instant, every time.Duration) bool {
	return s.Dirty || s.Full || s.LookDue(at, every)
}

// below is the cursor, but not above the horizon.
func (s *Reads) below() (after Cursor) {
	for p := range after {
		after[p] = min(s.cursor[p], s.horizon[p])
	}
	return after
}

// wholeDue tells whether to read from the beginning.
func (s *Reads) wholeDue(at instant.Instant, every time.Duration) bool {
	return s.Whole == 0 || at.Sub(s.Whole) >= every || s.Again != 0 && at >= s.Again
}

// Plan begins a read that there is reason for: of limit jobs beside those that seen counts behind a
// cursor, which were read before. upto is the id that no job in time is uncommitted of.
func (s *Reads) Plan(at instant.Instant, every time.Duration, limit int, upto int64, keyed bool, seen func(Cursor) int) Read {
	back := s.LookDue(at, every)
	r := Read{After: s.cursor, Limit: limit, Upto: upto, Whole: s.wholeDue(at, every)}
	if r.Whole {
		r.Routine = s.Whole != 0
		s.Whole, s.Again, s.horizon = at, 0, Cursor{}
	}
	if back || s.late || keyed {
		s.Looked, r.After = at, s.below()
		r.Limit += seen(r.After) + s.passedAfter(r.After)
	}
	s.rung = false
	return r
}

// PlanBack begins a read of jobs that were put back, up to the horizon.
func (s *Reads) PlanBack(first int64, limit int) Read {
	r := Read{Limit: limit, Upto: s.Settled(), Back: true}
	for p := range r.After {
		r.After[p] = first - 1
	}
	s.rung = false
	return r
}

// Settled is the id up to which all jobs in time have been read.
func (s *Reads) Settled() int64 { return slices.Min(s.horizon[1:]) }

// Read raises the cursor over a job that was read.
func (s *Reads) Read(priority int, id int64) { s.cursor[priority] = max(s.cursor[priority], id) }

// Pass notes that a job stays in its table. Above the horizon, reads will return it again.
func (s *Reads) Pass(priority int, id int64) {
	if id <= s.horizon[priority] {
		return
	}
	if s.passed == nil {
		s.passed = map[int64]int{}
	}
	s.passed[id] = priority
}

func (s *Reads) passedAfter(after Cursor) (n int) {
	for id, priority := range s.passed {
		if id > after[priority] {
			n++
		}
	}
	return n
}

// Took notes what a read has returned, of which so many jobs are new.
func (s *Reads) Took(r Read, got Fetched, fresh int, at instant.Instant) {
	if s.Shaken {
		s.Shaken, s.Again = false, at.Add(Window)
	}
	if r.Back {
		s.Dirty, s.late = s.Dirty || s.rung, s.late || s.rung
		return
	}
	s.Unseen, s.Told = false, s.rung
	complete := s.FromHorizon(r)
	if s.Full = got.Rows >= r.Limit; s.Full {
		s.ReadTo = got.Last
	}
	s.raise(r, got.Last)
	for id, p := range s.passed {
		if id <= s.horizon[p] {
			delete(s.passed, id)
		}
	}
	switch {
	case s.Full || fresh > 0: // go on: below the cursor, if it was cut off there
		s.Dirty, s.late = true, s.Full && got.Last.Order < s.cursor[got.Last.Priority]
	case !complete && !s.late: // dry: look back before it is left alone
		s.Dirty, s.late = true, true
	default:
		s.Dirty, s.late = s.rung, s.rung
	}
}

// FromHorizon tells whether a read begins at the horizon, or below it.
func (s *Reads) FromHorizon(r Read) bool {
	for p, id := range r.After {
		if id > s.horizon[p] {
			return false
		}
	}
	return true
}

// raise raises the horizon to where a read was complete, of each priority that it read
// from there on.
func (s *Reads) raise(r Read, last Place) {
	for p := range s.horizon {
		upto := r.Upto
		if s.Full && p >= last.Priority {
			if p > last.Priority {
				return
			}
			upto = min(upto, last.Order)
		}
		if r.After[p] <= s.horizon[p] {
			s.horizon[p] = max(s.horizon[p], upto)
		}
	}
}
