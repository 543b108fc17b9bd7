package scheduler

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Statements for people who look at all schedules, runs and processes. They are read-only, and
// each reads one committed state. Each reads at most limit rows of an index however long the
// tables are, except recentRuns, which reads the rows from :floor on.
var (
	// nextLane skips from one lane to the next with one index probe each.
	nextLane = sqlrun.SQL("scheduler.next-lane", `
		SELECT lane FROM {prefix}schedule WHERE state = 'active' AND lane > :after ORDER BY lane LIMIT 1`)

	// upcoming lists the schedules of a lane by the time at which they may be claimed.
	upcoming = sqlrun.SQL("scheduler.upcoming", `
		SELECT `+columns+`, {us next_exec} FROM {prefix}schedule
		WHERE state = 'active' AND lane = :lane AND next_exec >= {time 0} AND next_exec < {time :never}
		ORDER BY next_exec LIMIT :limit`)

	inState = sqlrun.SQL("scheduler.in-state", `
		SELECT `+columns+` FROM {prefix}schedule WHERE state = :state ORDER BY lane, next_exec LIMIT :limit`)
	weighInState = sqlrun.SQL("scheduler.weigh-in-state", `
		SELECT `+weights+` FROM {prefix}schedule WHERE state = :state ORDER BY lane, next_exec LIMIT :limit`)

	// runFloor finds the run :depth places before another one. The join keeps MySQL from reading
	// and sorting a whole index.
	runFloor = sqlrun.SQL("scheduler.run-floor", `
		SELECT r.id FROM (SELECT 1 AS n) AS one {join_by_key {prefix}run AS r} ON r.id < :before ORDER BY r.id DESC LIMIT 1 OFFSET :depth`)

	recentRuns = sqlrun.SQL("scheduler.recent-runs", `
		SELECT `+shortRun+` FROM {prefix}run WHERE id < :before AND id >= :floor AND state IN (:states)
		AND (:schedule = '' OR schedule = :schedule) AND COALESCE(finished_at, {now}) >= {time :since} AND COALESCE(started_at, due_at) < {time :until}
		ORDER BY id DESC LIMIT :limit`)

	shortHistory = sqlrun.SQL("scheduler.short-history", `
		SELECT `+shortRun+` FROM {prefix}run WHERE schedule = :schedule ORDER BY due_at DESC, attempt DESC LIMIT :limit`)

	// executing counts the runs of a lane by daemon. A running run stands in the index under the
	// end of its lease, so they are among the future times.
	executing = sqlrun.SQL("scheduler.executing", `
		SELECT r.exec_by, COUNT(*) FROM (
			SELECT exec_by, state FROM {prefix}run WHERE lane = :lane AND next_exec > {now} AND next_exec < {time :never}
			ORDER BY next_exec LIMIT :limit) AS r
		WHERE r.state = 'running' GROUP BY r.exec_by ORDER BY r.exec_by`)

	listNodes = sqlrun.SQL("scheduler.list-nodes", `
		SELECT name, version, state, `+sqlrun.Seen("expire_at")+`, `+sqlrun.Seen("started_at")+`, CASE WHEN state = 'live' AND expire_at > {now} THEN 1 ELSE 0 END,
			`+sqlrun.Seen("drained_at")+`, drained_by, tags, problem
		FROM {prefix}node WHERE name > :after ORDER BY name LIMIT :limit`)
)

// maxLanes bounds the number of lanes that Upcoming reads.
const maxLanes = 100

// A Planned is an active schedule, and when a daemon may claim its next slot.
type Planned struct {
	Schedule
	Next time.Time // the slot plus its jitter, or the time of the next try after an error
}

// Upcoming returns up to limit active schedules in the order of their next slots, late ones first.
// It omits schedules that are not planned yet, those without slots, and those in lanes beyond the
// first hundred; a lane is a tag, or a tag and a function.
func Upcoming(ctx context.Context, db *dialect.DB, limit int) ([]Planned, error) {
	var all []Planned
	lanes, err := lanes(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, lane := range lanes {
		found, err := sqlrun.Select(ctx, &db.Session, upcoming, sqlrun.Args{"lane": lane, "limit": limit, "never": never.UnixMicro()},
			scanPlanned)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b Planned) int { return a.Next.Compare(b.Next) })
	return all[:min(len(all), limit)], nil
}

// lanes returns the lanes of active schedules, ordered by name.
func lanes(ctx context.Context, db *dialect.DB) (all []string, err error) {
	lane := ""
	for range maxLanes {
		next, err := sqlrun.Select(ctx, &db.Session, nextLane, sqlrun.Args{"after": lane}, func(rows *sql.Rows) (name string, err error) {
			return name, rows.Scan(&name)
		})
		if err != nil || len(next) == 0 {
			return all, err
		}
		lane = next[0]
		all = append(all, lane)
	}
	return all, nil
}

// Tags returns the tags of active schedules in the lanes that Upcoming reads, ordered by name.
func Tags(ctx context.Context, db *dialect.DB) ([]string, error) {
	all, err := lanes(ctx, db)
	for i, lane := range all {
		all[i], _, _ = strings.Cut(lane, " ")
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// maxExecuting bounds the runs of a lane that Executing counts.
const maxExecuting = 1000

// Executing returns how many runs each daemon executes now, by daemon name. It counts up to a
// thousand runs in each lane that Upcoming reads.
func Executing(ctx context.Context, db *dialect.DB) (map[string]int, error) {
	all := map[string]int{}
	lanes, err := lanes(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, lane := range lanes {
		args := sqlrun.Args{"lane": lane, "limit": maxExecuting, "never": never.UnixMicro()}
		_, err := sqlrun.Select(ctx, &db.Session, executing, args, func(rows *sql.Rows) (none struct{}, err error) {
			var name string
			var n int
			err = rows.Scan(&name, &n)
			all[name] += n
			return none, err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func scanPlanned(rows *sql.Rows) (p Planned, err error) {
	var next int64
	bad, err := p.scan(rows, &next)
	if bad != nil {
		p.Reason = bad.Error()
	}
	p.Next = instantOf(next)
	return p, err
}

// SlotsAfter returns the next n slots of the schedule after now. It returns none if the schedule is
// not active or its spec is invalid.
func (s *Schedule) SlotsAfter(now time.Time, n int) (slots []time.Time) {
	plan, err := s.Slots()
	if err != nil || s.State != "active" {
		return nil
	}
	slot, ok := s.Due, s.Due.After(now)
	if !ok {
		if before := s.Starts.Add(-time.Microsecond); before.After(now) {
			now = before
		}
		if plan.Spec().Every() > 0 {
			now = s.onBeat(now)
		}
		slot, ok = plan.Next(now)
	}
	for ; ok && len(slots) < n && (s.Ends.IsZero() || !slot.After(s.Ends)); slot, ok = plan.Next(slot) {
		slots = append(slots, slot)
	}
	return slots
}

// InState returns up to limit schedules in a state: active, paused, ended or failed.
func InState(ctx context.Context, db *dialect.DB, state string, limit int) ([]Schedule, error) {
	return sqlrun.Select(ctx, &db.Session, inState, sqlrun.Args{"state": state, "limit": limit}, scanSchedule)
}

// InStateSome is [InState] for a caller with little memory, as [ListSome] is of [List].
func InStateSome(ctx context.Context, db *dialect.DB, state string, limit, most int) (all []Schedule, more bool, err error) {
	n, more, err := fitting(ctx, db, weighInState, sqlrun.Args{"state": state, "limit": limit}, most)
	if err != nil || n == 0 {
		return nil, false, err
	}
	all, err = InState(ctx, db, state, n)
	return all, more || n == limit, err
}

// RunStates lists the states of a run.
var RunStates = []string{"waiting", "running", "ok", "failed", "timeout", "lost", "retry", "cancelled", "skipped", "missed"}

// A RunFilter selects runs.
type RunFilter struct {
	Schedule string    // the name of one schedule; "": all
	States   []string  // empty: all
	Since    time.Time // runs that ended later or not at all; zero: all
	Until    time.Time // runs that began earlier, or whose slot is earlier if they never began; zero: all
	Before   int64     // runs with smaller ids; 0: all
	Limit    int       // default: 100
}

// runDepth is the number of runs that RecentRuns examines.
const runDepth = 10_000

// RecentRuns returns runs without their output, newest first. It examines ten thousand runs, so it
// may return fewer than match. Pass more as Before to continue; it is 0 after the oldest run.
func RecentRuns(ctx context.Context, db *dialect.DB, f RunFilter) (runs []Run, more int64, err error) {
	if f.Before <= 0 {
		f.Before = math.MaxInt64
	}
	if len(f.States) == 0 {
		f.States = RunStates
	}
	f.Limit = cmp.Or(f.Limit, 100)
	since, until := int64(0), never.UnixMicro()
	if !f.Since.IsZero() {
		since = max(0, f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		until = f.Until.UnixMicro()
	}
	var floor int64
	err = db.Get(ctx, runFloor, sqlrun.Args{"before": f.Before, "depth": runDepth}, &floor)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, 0, err
	}
	runs, err = sqlrun.Select(ctx, &db.Session, recentRuns, sqlrun.Args{
		"before": f.Before, "floor": floor, "states": f.States, "limit": f.Limit,
		"schedule": f.Schedule, "since": since, "until": until,
	}, scanRun)
	switch {
	case err != nil:
		return nil, 0, err
	case len(runs) == f.Limit:
		return runs, runs[len(runs)-1].ID, nil
	}
	return runs, floor, nil
}

// ShortHistory is History for one schedule, without the runs' output.
func ShortHistory(ctx context.Context, db *dialect.DB, name string, limit int) ([]Run, error) {
	return sqlrun.Select(ctx, &db.Session, shortHistory, sqlrun.Args{"schedule": name, "limit": limit}, scanRun)
}

// A Node is a process that takes part: a daemon that runs schedules, or a worker of queues.
type Node struct {
	Name    string // host, process and a random part
	Version string // of the program; "": unknown
	State   string // live; lost: its lease expired; gone: it has stopped
	Live    bool   // its state is live and its lease has not expired
	Until   time.Time
	Started time.Time

	Drained   time.Time // since when it takes no new work; zero: not drained
	DrainedBy string
	Tags      string // of the schedules that it runs, comma-separated; "": none
	Problem   string // what fails in it now, in its own words; "": nothing that it knows of

	// Wrong says what is wrong with its row, if somebody has written one that means nothing: the column and the problem.
	Wrong string
}

// Process returns what the names of a process's parts begin with: host:pid, to which each adds a random part. [Drain] takes it, too.
func (n *Node) Process() string {
	if i := strings.LastIndexByte(n.Name, ':'); strings.Count(n.Name, ":") >= 2 {
		return n.Name[:i]
	}
	return n.Name
}

// Processes sums up nodes that are parts of one process and follow one another, such as a daemon's schedules and what sends jobs to
// its endpoints: it is live if one is. The sum has the name of the process.
func Processes(nodes []Node) (all []Node) {
	for i := range nodes {
		n := nodes[i]
		n.Name = n.Process()
		if len(all) == 0 || all[len(all)-1].Name != n.Name {
			all = append(all, n)
			continue
		}
		is := &all[len(all)-1]
		if n.Live && !is.Live {
			is.Live, is.State, is.Until = true, n.State, n.Until
		}
		if n.Live == is.Live && n.Until.After(is.Until) {
			is.State, is.Until = n.State, n.Until
		}
		if n.Started.Before(is.Started) {
			is.Started = n.Started
		}
		if is.Drained.IsZero() && n.Live {
			is.Drained, is.DrainedBy = n.Drained, n.DrainedBy
		}
		is.Version, is.Tags = cmp.Or(is.Version, n.Version), cmp.Or(is.Tags, n.Tags)
		if n.Live {
			is.Problem = cmp.Or(is.Problem, n.Problem)
		}
	}
	return all
}

// Nodes lists up to limit processes whose names come after a name, in order. A killed process stays
// listed for about a day.
func Nodes(ctx context.Context, db *dialect.DB, after string, limit int) ([]Node, error) {
	return sqlrun.Select(ctx, &db.Session, listNodes, sqlrun.Args{"after": after, "limit": limit}, func(rows *sql.Rows) (n Node, err error) {
		var until, started, drained int64
		var row sqlrun.Reading
		err = rows.Scan(row.Into("name", &n.Name), row.Into("version", &n.Version), row.Into("state", &n.State), row.Instant("expire_at", &until),
			row.Instant("started_at", &started), &n.Live, row.Instant("drained_at", &drained),
			row.Into("drained_by", &n.DrainedBy), row.Into("tags", &n.Tags),
			row.Into("problem", &n.Problem))
		if n.State != "live" && n.State != "lost" && n.State != "gone" {
			row.Note("state", fmt.Sprintf("%.40q is none of live, lost, gone", n.State))
		}
		n.Wrong = row.Wrong
		n.Until, n.Started, n.Drained = instantOf(until), instantOf(started), instantOf(drained)
		return n, err
	})
}

// countByTag reads all schedules, for people who ask.
var countByTag = sqlrun.SQL("scheduler.count-by-tag", `
	SELECT tag, COUNT(*) FROM {prefix}schedule WHERE state = 'active' GROUP BY tag ORDER BY tag`)

// ActiveByTag counts the active schedules of each tag.
func ActiveByTag(ctx context.Context, db *dialect.DB) (map[string]int, error) {
	counts := map[string]int{}
	_, err := sqlrun.Select(ctx, &db.Session, countByTag, nil, func(rows *sql.Rows) (tag string, err error) {
		var n int
		err = rows.Scan(&tag, &n)
		counts[tag] = n
		return tag, err
	})
	return counts, err
}
