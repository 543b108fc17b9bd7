package httpapi

import (
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

const (
	figuresFor   = 5 * time.Second // how long figures are reused
	figuresShare = 20              // a look takes at most 1/20 of the time: with many queues, figures are read less often
	maxQueues    = 1000            // queues that are counted
	countedTo    = 10_000          // limit of the count of jobs per queue and state, and of locks, times ten
	lateAfter    = 10 * time.Second
	minutesBack  = 10 * time.Minute // age up to which a minute's counts may still change
)

// figures are what the tables say at one time.
type figures struct {
	at        instant.Instant
	queues    []queueFigures
	schedules map[string]int // by state
	due, late int
	runs      map[string]int // open runs, by state
	locks     int
	totals    map[string]admin.Minute // by queue, since the first look
	nodes     []nodeFigures
	offset    time.Duration // this host's clock minus the database's
	each      []scheduleFigures
}

type queueFigures struct {
	health.Depth
	stuck  int // jobs whose handlers do not return
	hungry int // workers whose handlers wait for connections

	tenants []admin.Tenant  // with the most ready jobs, of a fair queue
	longest []time.Duration // how long the oldest job of each has waited
}

// A sampler reads figures for everyone who needs them, at most once every five seconds.
type sampler struct {
	db     *dialect.DB
	queues *admin.Client

	reading chan struct{} // held by whoever reads the tables and uses the fields below
	most    int           // schedules that are examined one by one
	last    *figures
	until   instant.Instant
	seen    map[minuteOf]admin.Minute // nil: not read yet
	good    map[string]time.Time      // last known success of each schedule
}

type minuteOf struct {
	begins int64
	queue  string
}

func newSampler(db *dialect.DB, queues *admin.Client) *sampler {
	return &sampler{db: db, queues: queues, reading: make(chan struct{}, 1)}
}

// look returns recent figures.
func (s *sampler) look(ctx context.Context) (*figures, error) {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.last != nil && instant.Now() < s.until {
		return s.last, nil
	}
	began := instant.Now()
	f, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	now := instant.Now()
	s.last, s.until = f, now.Add(max(figuresFor, figuresShare*now.Sub(began)))
	return f, nil
}

func (s *sampler) read(ctx context.Context) (*figures, error) {
	f := &figures{at: instant.Now(), schedules: map[string]int{}, runs: map[string]int{}}
	for _, read := range []func(context.Context, *figures) error{
		s.readQueues, s.readSchedules, s.readRuns,
		s.readLocks, s.addUp, s.readNodes, s.readEach,
	} {
		if err := read(ctx, f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (s *sampler) readQueues(ctx context.Context, f *figures) error {
	now, err := s.readClock(ctx, f)
	if err != nil {
		return err
	}
	all, err := s.queues.Queues(ctx, "", maxQueues)
	if err != nil {
		return err
	}
	stuck, err := s.queues.Stuck(ctx)
	if err != nil {
		return err
	}
	starved, err := s.queues.Starved(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		q := queueFigures{stuck: stuck[all[i].Name], hungry: starved[all[i].Name]}
		if q.Depth, err = health.DepthOf(ctx, s.queues, &all[i], countedTo, now); err != nil {
			return err
		}
		if q.Fair && q.Ready > 0 {
			t, err := health.TenantsOf(ctx, s.queues, &all[i])
			if err != nil {
				return err
			}
			for _, one := range t.Tenants {
				q.tenants, q.longest = append(q.tenants, one), append(q.longest, max(0, now.Sub(one.Oldest)))
			}
		}
		f.queues = append(f.queues, q)
	}
	return nil
}

func (s *sampler) readSchedules(ctx context.Context, f *figures) error {
	_, err := sqlrun.Select(ctx, &s.db.Session, countSchedules, sqlrun.Args{"since": -lateAfter.Microseconds()},
		func(rows *sql.Rows) (none struct{}, err error) {
			var state string
			var n, due, late int
			err = rows.Scan(&state, &n, &due, &late)
			f.schedules[state], f.due, f.late = n, f.due+due, f.late+late
			return none, err
		})
	return err
}

func (s *sampler) readRuns(ctx context.Context, f *figures) error {
	_, err := sqlrun.Select(ctx, &s.db.Session, countRuns, nil, func(rows *sql.Rows) (none struct{}, err error) {
		var state string
		var n int
		err = rows.Scan(&state, &n)
		f.runs[state] = n
		return none, err
	})
	return err
}

func (s *sampler) readLocks(ctx context.Context, f *figures) error {
	return s.db.Get(ctx, countLocks, sqlrun.Args{"limit": 10 * countedTo}, &f.locks)
}

// addUp adds what was done since the last look to the totals. The table has counts by minute, and not
// forever. Counts from before the first look are ignored.
func (s *sampler) addUp(ctx context.Context, f *figures) error {
	minutes, err := s.queues.FinishedByMinute(ctx, minutesBack)
	if err != nil {
		return err
	}
	f.totals = map[string]admin.Minute{}
	if s.last != nil {
		for name, t := range s.last.totals {
			f.totals[name] = t
		}
	}
	seen := make(map[minuteOf]admin.Minute, len(minutes))
	for _, m := range minutes {
		key := minuteOf{m.Begins.Unix(), m.Queue}
		was, t := s.seen[key], f.totals[m.Queue]
		if s.seen != nil {
			t.Done, t.Failed, t.Dead = t.Done+max(0, m.Done-was.Done), t.Failed+max(0, m.Failed-was.Failed), t.Dead+max(0, m.Dead-was.Dead)
			t.Late += max(0, m.Late-was.Late)
			t.Waited, t.Took = t.Waited+max(0, m.Waited-was.Waited), t.Took+max(0, m.Took-was.Took)
		}
		seen[key], f.totals[m.Queue] = m, t
	}
	s.seen = seen
	return nil
}

type allQueuesOutput struct {
	Body struct {
		Queues []wire.QueueFigures `json:"queues" nullable:"false" doc:"The queues, by name, up to 1000."`
	} `nameHint:"AllQueueStats"`
}

func newQueueFigures(q *queueFigures) wire.QueueFigures {
	return wire.QueueFigures{Queue: q.Name, State: q.State, QueueCounts: wireof.QueueCounts(&q.Counts), Oldest: wireof.Seconds(q.Age)}
}

// overall registers the operation that returns the figures of all queues.
func (a *API) overall() {
	register(a, operation{
		id: "all-queue-stats", method: http.MethodGet, path: "/stats/queues", tag: "queues", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusUnprocessableEntity},
		summary: "Count the jobs of all queues by state",
		more:    "They are up to five seconds old, or more if there are very many queues.",
	}, func(ctx context.Context, _ *struct{}) (*allQueuesOutput, error) {
		f, err := a.sample.look(ctx)
		if err != nil {
			return nil, err
		}
		out := &allQueuesOutput{}
		out.Body.Queues = wireof.Each(f.queues, newQueueFigures)
		return out, nil
	})
}
