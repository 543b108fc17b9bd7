package block

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

// A Cursor is an id for each priority.
type Cursor [Priorities + 1]int64

// Reads plans what to read next of the ready jobs of a block. An id is drawn before its job is
// committed, so new jobs may have ids below the cursor. The horizon closes the gap:
//
//	Every job with an id up to the horizon of its priority that was committed at most
//	Window after its id was drawn has been read.
//
// A read from the horizon, or from below it, that was sent at a time S returns all that was
// committed before S. Ids of times before S - Window were drawn before that time, and so
// committed before S, if they are to be in time: the read raises the horizon to S - Window, or
// to the last id that it returned if it was cut off. Nothing else raises it. So a look back
// begins where the last good one left off, whatever kept the worker from reading: a pause, a
// full worker, errors, a process that was stopped. While the cursor is above the horizon there
// may be unread jobs in between, and the block is read from the horizon every LookEvery. When a
// job of a key is read, all jobs before it that are in time have been read.
//
// Jobs committed later than Window are found by deeper looks back (see [Depths]), which lower the
// horizon, and by reading the whole block. That happens every now and then; after an outage, since
// it delayed producers too; and when the database's clock was set, since ids from before and after
// cannot be compared.
//
// It is not safe for concurrent use.
type Reads struct {
	Dirty  bool  // there may be new jobs
	Full   bool  // the last read was cut off: there are more
	Unseen bool  // nothing has been read yet
	Told   bool  // new jobs were announced and not read since
	ReadTo Place // where the last read was cut off

	cursor  Cursor // the highest id read
	horizon Cursor // see above
	rung    bool   // there may be new jobs since the last read began
	late    bool   // and they may be below the cursor

	Looked instant.Instant // last read from the horizon
	Whole  instant.Instant // last read from the beginning; 0: never, or not since an outage
	Shaken bool            // an outage may not be over yet
	Again  instant.Instant // when to read from the beginning once more after an outage; 0: never

	Depths Depths          // plans deeper looks
	rose   instant.Instant // when a read last raised the cursor
	was    Cursor          // the cursor then
	top    Cursor          // the horizon before it was lowered to look for late jobs

	passed map[int64]int // priorities, by id, of jobs above the horizon that stay in their table
}

// A Read describes a read to make.
type Read struct {
	After Cursor
	Limit int
	Upto  int64 // all ids up to here are committed, if they are in time

	Whole   bool // it covers the whole block
	Routine bool // and only because that is due periodically
	Deep    bool // it looks back beyond Window
	Back    bool // it covers jobs that were put back
}

// Fetched is the result of a read: the number of rows, and the last one. Rows come by priority
// and id.
type Fetched struct {
	Rows int
	Last Place
}

// Cursor returns the highest ids read.
func (s *Reads) Cursor() Cursor { return s.cursor }

// Horizon returns the ids up to which all jobs in time were read.
func (s *Reads) Horizon() Cursor { return s.horizon }

// Level reports whether no job in time is missing below the cursor.
func (s *Reads) Level() bool { return s.cursor == s.below() }

// Rouse records that there are new jobs, even if a read is under way.
func (s *Reads) Rouse() { s.Dirty, s.rung, s.Told = true, true, true }

// Ring records that there may be new jobs that a read under way does not return.
func (s *Reads) Ring() { s.rung = true }

// Back makes the next read start at the horizon, at once.
func (s *Reads) Back() { s.Dirty, s.late = true, true }

// Anew makes the next read cover the whole block.
func (s *Reads) Anew() { s.Dirty, s.Whole = true, 0 }

// Distrust makes the next read cover the whole block. Another such read follows when an outage
// has been over for so long that everything that was under way is committed.
func (s *Reads) Distrust() { s.Whole, s.Shaken = 0, true }

// From makes the next read include jobs from an id on.
func (s *Reads) From(id int64) {
	s.lower(id - 1)
	for p := range s.top {
		s.top[p] = min(s.top[p], id-1)
	}
	s.late = true
	s.Rouse() // even if a read from further on is under way
}

// lower lowers the horizon to an id.
func (s *Reads) lower(id int64) {
	for p := range s.horizon {
		s.horizon[p] = min(s.horizon[p], id)
	}
}

// LookDue reports whether to look back: every LookEvery while jobs may come below the cursor,
// further at longer intervals, and at the whole block now and then. A quiet block relies on
// announcements of new jobs.
func (s *Reads) LookDue(at instant.Instant, every time.Duration) bool {
	return s.wholeDue(at, every) || at.Sub(s.Looked) >= LookEvery && !s.Level() || s.Depths.Due(at, s.rose) > 0
}

// LookFrom returns from where to look back in a quiet block, if that is due.
func (s *Reads) LookFrom(at instant.Instant, every time.Duration, ago Ago) (from Cursor, due bool) {
	depth := s.Depths.Due(at, s.rose)
	switch {
	case s.wholeDue(at, every):
		return from, true
	case depth == 0:
		return from, false
	}
	for p, id := range s.below() {
		from[p] = min(id, ago(depth))
	}
	return from, true
}

// Rest delays the next read of a kind after one that took long.
func (s *Reads) Rest(r Read, at instant.Instant, by time.Duration) {
	switch {
	case r.Whole && s.Whole != 0: // otherwise it is to be read again at once
		s.Whole = s.Whole.Add(by)
	case r.Deep:
		s.Depths.Rest(at.Add(by))
	}
}

// Due reports whether there is reason to read.
func (s *Reads) Due(at instant.Instant, every time.Duration) bool {
	return s.Dirty || s.Full || s.LookDue(at, every)
}

// below returns the cursor, or the horizon where that is lower.
func (s *Reads) below() (after Cursor) {
	for p := range after {
		after[p] = min(s.cursor[p], s.horizon[p])
	}
	return after
}

// wholeDue reports whether to read from the beginning.
func (s *Reads) wholeDue(at instant.Instant, every time.Duration) bool {
	return s.Whole == 0 || at.Sub(s.Whole) >= every || s.Again != 0 && at >= s.Again
}

// Plan begins a read, if there is reason for one: of limit jobs, plus as many as were read
// before behind the cursor, which seen counts.
func (s *Reads) Plan(at instant.Instant, every time.Duration, limit int, ago Ago, keyed bool, seen func(Cursor) int) Read {
	back := s.LookDue(at, every)
	r := Read{After: s.cursor, Limit: limit, Upto: ago(Window), Whole: s.wholeDue(at, every)}
	r.Routine = r.Whole && s.Whole != 0
	depth := s.Depths.Due(at, s.rose)
	if r.Deep = !r.Whole && depth > 0; r.Deep || r.Routine {
		for p := range s.top {
			s.top[p] = max(s.top[p], s.horizon[p])
		}
	}
	switch {
	case r.Whole:
		s.Whole, s.Again, s.horizon = at, 0, Cursor{}
		s.Depths.Look(at, Window<<deepest)
		if !r.Routine {
			s.top = Cursor{}
		}
	case r.Deep:
		s.lower(ago(depth))
		s.Depths.Look(at, depth)
	}
	if back || s.late || keyed {
		s.Looked, r.After = at, s.below()
		r.Limit += seen(r.After) + s.passedAfter(r.After)
	}
	s.rung = false
	return r
}

// PlanBack begins a read of jobs that were put back, up to the farthest horizon.
func (s *Reads) PlanBack(first int64, limit int) Read {
	r := Read{Limit: limit, Upto: s.Committed(), Back: true}
	for p := range r.After {
		r.After[p] = first - 1
	}
	s.rung = false
	return r
}

// Committed returns an id up to which all jobs in time are committed. Those of a priority may be unread: reads that are cut
// off do not come to it, for as long as there are more of the urgent ones.
func (s *Reads) Committed() int64 { return slices.Max(s.horizon[1:]) }

// Late reports whether a job that was read for the first time was committed later than Window, or
// came into the block later.
func (s *Reads) Late(priority int, id int64) bool { return id <= s.top[priority] }

// Read raises the cursor to a job that was read.
func (s *Reads) Read(priority int, id int64) { s.cursor[priority] = max(s.cursor[priority], id) }

// Pass records that a job stays in its table. Above the horizon, reads will return it again.
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

// Took records the result of a read, of which fresh jobs are new.
func (s *Reads) Took(r Read, got Fetched, fresh int, at instant.Instant) {
	if s.Shaken {
		s.Shaken, s.Again = false, at.Add(Window)
	}
	if r.Back {
		s.Dirty, s.late = s.Dirty || s.rung, s.late || s.rung
		return
	}
	s.Unseen, s.Told = false, s.rung
	if s.cursor != s.was {
		s.was, s.rose = s.cursor, at
	}
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
	case s.Full || fresh > 0: // go on: from below the cursor, if it was cut off there
		s.Dirty, s.late = true, s.Full && got.Last.Order < s.cursor[got.Last.Priority]
	case !complete && !s.late: // nothing new: look back before leaving the block alone
		s.Dirty, s.late = true, true
	default:
		s.Dirty, s.late = s.rung, s.rung
	}
}

// FromHorizon reports whether a read begins at the horizon or below it.
func (s *Reads) FromHorizon(r Read) bool {
	for p, id := range r.After {
		if id > s.horizon[p] {
			return false
		}
	}
	return true
}

// raise raises the horizon of each priority that the read covered from the horizon on, to where
// it was complete.
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
