package scheduler

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Searches of an index begin at a floor. Entries before it belong to rows that have moved on; until
// the engine has cleaned them up, each search would walk over all of them. Rows are written with
// times from now on. So a row may appear before the first one found, but not before now minus the
// duration of a transaction. A row that a person writes into the past is found once a minute, when
// a search begins without a floor.
const (
	floorSlack = time.Minute
	floorAge   = time.Minute
)

func (s *Scheduler) floor() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// look decides whether to search without a floor.
func (s *Scheduler) look() {
	now := time.Now() //nolint:forbidigo // how long ago the last such look was
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sinceAt.IsZero() || now.Sub(s.sinceAt) > floorAge {
		s.since, s.sinceAt = 0, now
	}
}

// asks reports whether to check for cancellation requests: once per poll, or after an announced
// change.
func (s *Scheduler) asks() bool {
	now := time.Now() //nolint:forbidigo // how long ago it was asked
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.askedAt) < s.opt.Poll && !s.sinceAt.IsZero() {
		return false
	}
	s.askedAt = now
	return true
}

// seen raises the floor: nothing is due before these times.
func (s *Scheduler) seen(now, first int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = max(s.since, min(now-floorSlack.Microseconds(), first))
}

// A laneProbe is the result of probing a lane.
type laneProbe struct {
	lane            string
	now             int64
	schedules, runs sql.NullInt64 // earliest time at which one may be claimed
	unplanned       int64
	drained         bool // this daemon must claim nothing
}

// first returns when there is something to do in the lane.
func (l *laneProbe) first() int64 {
	first := int64(math.MaxInt64)
	for _, at := range []sql.NullInt64{l.schedules, l.runs} {
		if at.Valid {
			first = min(first, at.Int64)
		}
	}
	return first
}

// isDue reports whether there is something to do in the lane now.
func (l *laneProbe) isDue() bool { return l.unplanned > 0 || l.first() <= l.now }

// hasCome reports whether a time of the lane has come.
func (l *laneProbe) hasCome(at sql.NullInt64) bool { return at.Valid && at.Int64 <= l.now }

// left returns the time until there is something to do, most at the longest.
func (l *laneProbe) left(most time.Duration) time.Duration {
	return min(most, time.Duration(min(l.first()-l.now, most.Microseconds())+500)*time.Microsecond)
}

// probe probes all lanes.
func (s *Scheduler) probe(ctx context.Context, lanes []string) ([]laneProbe, error) {
	rows := make([]sqlrun.Args, len(lanes))
	for i, lane := range lanes {
		rows[i] = sqlrun.Args{"lane": lane}
	}
	return sqlrun.Select(ctx, &s.db.Session, probe, sqlrun.Args{"rows": rows, "since": s.floor(), "node": s.owner},
		func(rows *sql.Rows) (l laneProbe, err error) {
			return l, rows.Scan(&l.lane, &l.now, &l.schedules, &l.runs, &l.unplanned, &l.drained)
		})
}

// noteDrained reports whether this daemon is drained, and logs each change.
func (s *Scheduler) noteDrained(found []laneProbe) bool {
	drained := len(found) > 0 && found[0].drained
	if drained != s.drained {
		s.drained = drained
		if drained {
			s.opt.Logger.Info("drained: this daemon begins no more runs, and finishes those that it has begun", "node", s.owner, "running", s.busy())
		} else {
			s.opt.Logger.Info("no longer drained: this daemon begins runs again", "node", s.owner)
		}
	}
	return drained
}
