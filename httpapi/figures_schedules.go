package httpapi

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	runsBack    = 20  // of each schedule that are examined
	runsFarBack = 500 // likewise, once, to find the last success of a schedule
	maxVersions = 50
)

// scheduleFigures are the figures of one schedule.
type scheduleFigures struct {
	name     string
	late     time.Duration // time since its slot should have been claimed
	running  int
	failures int           // consecutive failures among the newest runs
	success  time.Time     // end of the last successful run; zero: not in the history
	took     time.Duration // duration of the last ended run; -1: none
}

// nodeFigures counts the processes of one version.
type nodeFigures struct {
	version    string
	live, lost int
}

// readClock reads the database's clock and compares it with this host's clock at the middle of the
// statement.
func (s *sampler) readClock(ctx context.Context, f *figures) (time.Time, error) {
	before := instant.Now()
	began := time.Now() //nolint:forbidigo // it is this host's clock that is looked at
	now, err := scheduler.Clock(ctx, s.db)
	f.offset = began.Add(instant.Now().Sub(before) / 2).Sub(now)
	return now, err
}

func (s *sampler) readNodes(ctx context.Context, f *figures) (err error) {
	f.nodes, err = sqlrun.Select(ctx, &s.db.Session, countNodes, sqlrun.Args{"limit": maxVersions},
		func(rows *sql.Rows) (n nodeFigures, err error) {
			return n, rows.Scan(&n.version, &n.live, &n.lost)
		})
	return err
}

// readEach examines schedules one by one, if anybody needs that.
func (s *sampler) readEach(ctx context.Context, f *figures) error {
	if s.most <= 0 {
		return nil
	}
	now, err := scheduler.Clock(ctx, s.db)
	if err != nil {
		return err
	}
	f.each, err = sqlrun.Select(ctx, &s.db.Session, firstSchedules, sqlrun.Args{"limit": s.most},
		func(rows *sql.Rows) (p scheduleFigures, err error) {
			var state, text string
			var due int64
			if err = rows.Scan(&p.name, &state, &text, &due); err != nil {
				return p, err
			}
			jitter, _ := plain.ParseDuration(text) // an unreadable schedule fails and reports it
			if state == "active" && due > 0 {
				p.late = max(0, now.Sub(time.UnixMicro(due))-jitter)
			}
			p.took = -1
			return p, nil
		})
	if err != nil {
		return err
	}
	was := s.good
	s.good = make(map[string]time.Time, len(f.each))
	for part := range slices.Chunk(f.each, sqlrun.UnionRows) {
		if err := s.readRunsOf(ctx, part, was); err != nil {
			return err
		}
	}
	return nil
}

// readRunsOf reads the runs of some schedules. was holds their last successes as known so far.
func (s *sampler) readRunsOf(ctx context.Context, some []scheduleFigures, was map[string]time.Time) error {
	names, by := make([]string, len(some)), make(map[string]*scheduleFigures, len(some))
	for i := range some {
		names[i], by[some[i].name] = some[i].name, &some[i]
	}
	_, err := sqlrun.Select(ctx, &s.db.Session, runningOf, sqlrun.Args{"names": names}, func(rows *sql.Rows) (none struct{}, err error) {
		var name string
		var n int
		if err = rows.Scan(&name, &n); err == nil && by[name] != nil {
			by[name].running = n
		}
		return none, err
	})
	if err != nil {
		return err
	}
	ended, err := s.endedRuns(ctx, names, runsBack)
	if err != nil {
		return err
	}
	var unknown []string
	for i := range some {
		p := &some[i]
		p.sumUp(ended[p.name])
		if p.success.IsZero() {
			p.success = was[p.name]
		}
		if p.success.IsZero() && len(ended[p.name]) > 0 {
			unknown = append(unknown, p.name)
		}
	}
	if ended, err = s.endedRuns(ctx, unknown, runsFarBack); err != nil {
		return err
	}
	for _, name := range unknown {
		far := scheduleFigures{}
		far.sumUp(ended[name])
		by[name].success = far.success
	}
	for i := range some {
		if p := &some[i]; !p.success.IsZero() {
			s.good[p.name] = p.success
		}
	}
	return nil
}

// sumUp evaluates the newest runs, the last one first.
func (p *scheduleFigures) sumUp(runs []endedRun) {
	p.took = -1
	counting := true
	for _, r := range runs {
		if p.took < 0 && r.ended > 0 && r.began > 0 {
			p.took = max(0, time.Duration(r.ended-r.began)*time.Microsecond)
		}
		switch r.state {
		case "ok":
			if p.success.IsZero() && r.ended > 0 {
				p.success = time.UnixMicro(r.ended)
			}
			counting = false
		case "failed", "timeout", "lost":
			if counting {
				p.failures++
			}
		}
	}
}

// An endedRun is what a run says about its schedule.
type endedRun struct {
	due, began, ended int64
	attempt           int
	state             string
}

// endedRuns reads the newest runs of some schedules, up to limit of each, newest first.
func (s *sampler) endedRuns(ctx context.Context, names []string, limit int) (map[string][]endedRun, error) {
	if len(names) == 0 {
		return nil, nil
	}
	args := make([]sqlrun.Args, len(names))
	for i, name := range names {
		args[i] = sqlrun.Args{"name": name}
	}
	by := map[string][]endedRun{}
	_, err := sqlrun.Select(ctx, &s.db.Session, lastRuns, sqlrun.Args{"rows": args, "limit": limit},
		func(rows *sql.Rows) (none struct{}, err error) {
			var r endedRun
			var name string
			err = rows.Scan(&name, &r.due, &r.attempt, &r.state, &r.began, &r.ended)
			by[name] = append(by[name], r)
			return none, err
		})
	for _, runs := range by {
		slices.SortFunc(runs, func(a, b endedRun) int { return cmp.Or(cmp.Compare(b.due, a.due), cmp.Compare(b.attempt, a.attempt)) })
	}
	return by, err
}
