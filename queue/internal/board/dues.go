package board

import (
	"math"

	"github.com/dbcron/dbcron/internal/instant"
)

// A Due is where a delayed job stands in its block: when it is due, in µs since 1970, and its id.
type Due struct{ At, ID int64 }

// Before tells whether a job is due before another.
func (d Due) Before(o Due) bool { return d.At < o.At || d.At == o.At && d.ID < o.ID }

// A Dues is the plan of what to read next of the delayed jobs of a block that are due. Each read
// goes on behind the last job of the one before, so that it passes no row twice, nor what is left
// of those that were done.
//
// A job may be committed behind that place: its transaction took long, or it was due at once. So a
// Dues has a horizon, as a [Reads] has one for jobs that are ready:
//
//	Every job that is due up to the horizon, and was committed in time, has been read.
//
// A job is due after its row was written. So a read from the horizon has returned all jobs in time
// that are due up to Settled, and raises the horizon to there, but not beyond the last job that was
// read: nobody has to be in time after that. Reads go back to the horizon now and then, when
// somebody has seen a job behind the cursor, and always in a block with keys, whose jobs begin in
// the order in which they are due.
//
// The zero value has read nothing. It is not safe for concurrent use.
type Dues struct {
	Ripe bool // some may be due

	cursor  Due             // the last job that was read
	horizon Due             // see above
	late    bool            // a job may be due before the cursor that was not read
	looked  instant.Instant // when it was last read from the horizon
}

// A DueRead is a read that is to be made: of up to Limit jobs, those after After.
type DueRead struct {
	After   Due
	Limit   int
	Settled int64 // µs: jobs that are due up to then are committed, if they are in time
}

// Horizon returns the time up to which all jobs were read that are due: those after it that are in
// the table may be new.
func (s *Dues) Horizon() int64 { return s.horizon.At }

// Plan says what to read: limit jobs beside those that were read before, which are had at the
// most. A read of all starts from the beginning.
func (s *Dues) Plan(at instant.Instant, settled int64, limit, had int, all, keyed bool) DueRead {
	if all {
		s.horizon, s.late = Due{}, true
	}
	r := DueRead{After: s.cursor, Limit: limit, Settled: settled}
	if s.horizon.Before(s.cursor) && (s.late || keyed || at.Sub(s.looked) >= LookEvery) {
		s.looked, r.After, r.Limit = at, s.horizon, limit+had
	}
	return r
}

// Took notes what a read has returned: so many rows, and the last of them.
func (s *Dues) Took(r DueRead, rows int, last Due) {
	s.Ripe = rows >= r.Limit
	behind := s.Ripe && last.Before(s.cursor) // it was cut off there
	if s.cursor.Before(last) {
		s.cursor = last
	}
	if s.horizon.Before(r.After) {
		return
	}
	s.late = behind
	upto := Due{r.Settled, math.MaxInt64}
	if !s.Ripe {
		last = s.cursor
	}
	if last.Before(upto) {
		upto = last
	}
	if s.horizon.Before(upto) {
		s.horizon = upto
	}
}

// Saw notes that a job is in the table that is due at a time: one that was not read, maybe.
func (s *Dues) Saw(at int64) { s.late = s.late || at <= s.cursor.At }

// Missed notes that a job was returned and not taken, since what it was before is not forgotten
// yet: it is read again.
func (s *Dues) Missed(d Due) {
	if before := (Due{d.At, d.ID - 1}); before.Before(s.horizon) {
		s.horizon = before
	}
	s.late = true
}

// Anew has all be read from the beginning.
func (s *Dues) Anew() { *s = Dues{Ripe: true} }
