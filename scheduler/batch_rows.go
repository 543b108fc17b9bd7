package scheduler

import "cmp"

// The rows of the statements that each fire needs, without a map for each row: see sqlrun.Rows.

// A begun run, as the statement begin inserts it: a run and its schedule's lane.
type beginRow struct {
	run
	lane string
}

type beginRows []beginRow

func (rows beginRows) Len() int { return len(rows) }

func (rows beginRows) Int(i int, column string) (int64, bool) {
	switch r := &rows[i]; column {
	case "due":
		return r.due.UnixMicro(), true
	case "nth":
		return int64(r.attempt), true
	case "failed":
		return int64(r.failures), true
	case "crashed":
		return int64(r.crashes), true
	case "number":
		return r.fence, true
	}
	return 0, false
}

func (rows beginRows) Value(i int, column string) (any, bool) {
	switch r := &rows[i]; column {
	case "name":
		return r.schedule, true
	case "path":
		return cmp.Or(r.pinned, r.lane), true
	case "why":
		return r.cause, true
	case "after_us": // of runs that wait
		return nil, true
	}
	return rows.Int(i, column)
}

// A moveRow moves a schedule on; 0 stands for no time.
type moveRow struct{ id, due, next, begun int64 }

type moveRows []moveRow

func (rows moveRows) Len() int { return len(rows) }

func (rows moveRows) Int(i int, column string) (n int64, ok bool) {
	switch r := &rows[i]; column {
	case "id":
		return r.id, true
	case "due":
		return r.due, r.due != 0
	case "upcoming":
		return r.next, r.next != 0
	case "begun":
		return r.begun, true
	}
	return 0, false
}

func (rows moveRows) Value(i int, column string) (any, bool) {
	if n, ok := rows.Int(i, column); ok {
		return n, true
	}
	return nil, column == "due" || column == "upcoming"
}

// A finishRow is a run's outcome.
type finishRow struct {
	id         int64
	claim      string
	outcome    string
	why, said  string
	exitStatus any // nil: none
	keep       int64
}

type finishRows []finishRow

func (rows finishRows) Len() int { return len(rows) }

func (rows finishRows) Int(i int, column string) (int64, bool) {
	switch r := &rows[i]; column {
	case "id":
		return r.id, true
	case "keep":
		return r.keep, true
	}
	return 0, false
}

func (rows finishRows) Value(i int, column string) (any, bool) {
	switch r := &rows[i]; column {
	case "claim":
		return r.claim, true
	case "outcome":
		return r.outcome, true
	case "why":
		return r.why, true
	case "said":
		return r.said, true
	case "exit_status":
		return r.exitStatus, true
	}
	return rows.Int(i, column)
}

// A loseRow is a run that nobody will finish. With more, its reason is added to what the run says
// already.
type loseRow struct {
	id           int64
	outcome, why string
	more         bool
	keep         int64
}

type loseRows []loseRow

func (rows loseRows) Len() int { return len(rows) }

func (rows loseRows) Int(i int, column string) (int64, bool) {
	switch r := &rows[i]; column {
	case "id":
		return r.id, true
	case "keep":
		return r.keep, true
	case "more":
		if r.more {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func (rows loseRows) Value(i int, column string) (any, bool) {
	switch r := &rows[i]; column {
	case "outcome":
		return r.outcome, true
	case "why":
		return r.why, true
	}
	n, ok := rows.Int(i, column)
	return n, ok
}

// A passRow is a range to insert, or to add to the row of an id.
type passRow struct {
	id    int64
	c     *candidate
	state string
	slotRange
}

type passRows []passRow

func (rows passRows) Len() int { return len(rows) }

func (rows passRows) Int(i int, column string) (int64, bool) {
	switch r := &rows[i]; column {
	case "id":
		return r.id, true
	case "since":
		return r.from.UnixMicro(), true
	case "upto":
		return r.to.UnixMicro(), true
	case "more":
		return r.n, true
	case "keep":
		return keepOf(&r.c.Schedule), true
	}
	return 0, false
}

func (rows passRows) Value(i int, column string) (any, bool) {
	switch r := &rows[i]; column {
	case "name":
		return r.c.Name, true
	case "path":
		return r.c.lane, true
	case "outcome":
		return r.state, true
	case "why":
		return r.why, true
	}
	return rows.Int(i, column)
}

// A noteRow is an incident as it is recorded.
type noteRow struct {
	who, what, said, whom string
	run, due, anew        int64 // 0: none, no
}

type noteRows []noteRow

func (rows noteRows) Len() int { return len(rows) }

func (rows noteRows) Value(i int, column string) (any, bool) {
	switch r := &rows[i]; column {
	case "who":
		return r.who, true
	case "what":
		return r.what, true
	case "said":
		return r.said, true
	case "whom":
		return r.whom, true
	case "ran":
		return r.run, true
	case "slot":
		if r.due == 0 {
			return nil, true
		}
		return r.due, true
	case "afresh":
		return r.anew, true
	}
	return nil, false
}

// nameRows are names of schedules.
type nameRows []string

func (rows nameRows) Len() int { return len(rows) }

func (rows nameRows) Value(i int, column string) (any, bool) { return rows[i], column == "name" }
