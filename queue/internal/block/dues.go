package block

import (
	"maps"
	"math"

	"github.com/dbcron/dbcron/internal/instant"
)

// A Due is the position of a delayed job in its block: when it is due, in µs since 1970, and
// its id.
type Due struct{ At, ID int64 }

// Before reports whether a job is due before another.
func (d Due) Before(o Due) bool { return d.At < o.At || d.At == o.At && d.ID < o.ID }

// Dues plans what to read next of the delayed jobs of a block that are due. Each read goes on
// behind the last job of the one before, so that it passes no row twice, nor the remains of
// deleted ones.
//
// A job may be committed behind that position: its transaction took long, or it was due at
// once. So Dues has a horizon, as [Reads] has one for ready jobs:
//
//	Every job that is due up to the horizon, and was committed in time, has been read.
//
// A job is due after its row was written. So a read from the horizon has returned all jobs in
// time that are due up to Upto. It raises the horizon to there, but not beyond the last job
// read: after that, no job has to be in time yet. Reads go back to the horizon now and then,
// when a job was seen behind the cursor, and always in a block with keys, whose jobs begin in
// the order in which they are due.
//
// The zero value has read nothing. It is not safe for concurrent use.
type Dues struct {
	Ripe bool // jobs may be due

	cursor  Due             // the last job read
	horizon Due             // see above
	late    bool            // an unread job may be due before the cursor
	looked  instant.Instant // last read from the horizon
	depths  Depths
	planned instant.Instant // the last read
	rose    instant.Instant // when a read last raised the cursor
	passed  map[Due]bool    // jobs above the horizon that stay in their table
}

// A DueRead describes a read to make: up to Limit jobs, those after After.
type DueRead struct {
	After Due
	Limit int
	Upto  int64 // µs: all jobs due up to then are committed, if they are in time
}

// Horizon returns the time up to which all due jobs have been read: jobs in the table that are
// due later may be new.
func (s *Dues) Horizon() int64 { return s.horizon.At }

// LookDue reports whether to look back for jobs that were not in time.
func (s *Dues) LookDue(at instant.Instant) bool { return s.depths.Due(at, s.rose) > 0 }

// LookFrom returns the time in µs after which a look finds unread jobs, in a block with no others.
// upto is that of the next read.
func (s *Dues) LookFrom(at instant.Instant, upto int64) int64 {
	depth := s.depths.Due(at, s.rose)
	if depth == 0 {
		return s.horizon.At
	}
	s.depths.Look(at, depth)
	return min(s.horizon.At, upto-depth.Microseconds())
}

// Plan plans the next read: limit jobs, plus up to had jobs that were read before. A read of
// all jobs starts from the beginning.
func (s *Dues) Plan(at instant.Instant, upto int64, limit, had int, all, keyed bool) DueRead {
	s.planned = at
	switch depth := s.depths.Due(at, s.rose); {
	case all:
		s.horizon, s.late = Due{}, true
	case depth > 0 && s.horizon != Due{}:
		s.depths.Look(at, depth)
		if back := (Due{At: upto - depth.Microseconds()}); back.Before(s.horizon) {
			s.horizon, s.late = back, true
		}
	}
	if (s.horizon == Due{}) {
		s.depths.Look(at, Window<<deepest)
	}
	r := DueRead{After: s.cursor, Limit: limit, Upto: upto}
	switch {
	case !s.horizon.Before(s.cursor):
		s.looked = at // it reads from the horizon
	case s.late || keyed || at.Sub(s.looked) >= LookEvery:
		s.looked, r.After, r.Limit = at, s.horizon, limit+had+len(s.passed)
	}
	return r
}

// Took records the result of a read: the number of rows, and the last of them.
func (s *Dues) Took(r DueRead, rows int, last Due) {
	s.Ripe = rows >= r.Limit
	behind := s.Ripe && last.Before(s.cursor) // the read was cut off before the cursor
	if s.cursor.Before(last) {
		s.cursor, s.rose = last, s.planned
	}
	if s.horizon.Before(r.After) {
		return
	}
	s.late = behind
	upto := Due{r.Upto, math.MaxInt64}
	if !s.Ripe {
		last = s.cursor
	}
	if last.Before(upto) {
		upto = last
	}
	if s.horizon.Before(upto) {
		s.horizon = upto
	}
	maps.DeleteFunc(s.passed, func(d Due, _ bool) bool { return !s.horizon.Before(d) })
}

// Pass records that a job stays in its table. Above the horizon, reads will return it again.
func (s *Dues) Pass(d Due) {
	if !s.horizon.Before(d) {
		return
	}
	if s.passed == nil {
		s.passed = map[Due]bool{}
	}
	s.passed[d] = true
}

// Saw records that the table has a job due at a time, which may not have been read.
func (s *Dues) Saw(at int64) { s.late = s.late || at <= s.cursor.At }

// Missed records that a returned job was not taken, because its previous state is not forgotten
// yet: it has to be read again.
func (s *Dues) Missed(d Due) {
	if before := (Due{d.At, d.ID - 1}); before.Before(s.horizon) {
		s.horizon = before
	}
	s.late = true
}

// Anew makes the next read start from the beginning.
func (s *Dues) Anew() { *s = Dues{Ripe: true} }
