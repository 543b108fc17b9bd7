// Package top is what dbcron top shows: the views, and the terminal in which a user goes through them.
package top

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// The views of dbcron top.
const (
	overviewView  = "overview"
	queuesView    = "queues"
	queueView     = "queue"
	schedulesView = "schedules"
	runsView      = "runs"
	locksView     = "locks"
	daemonsView   = "daemons"
)

// Limits of one read. Jobs of queues are counted as on the dashboard.
const (
	maxRows  = 200
	maxNext  = 10
	maxJobs  = 25 // per state
	lookTime = 15 * time.Second
)

// A Look reads what dbcron top shows. It is not safe for concurrent use.
type Look struct {
	db     *dialect.DB
	queues *admin.Client
	locks  *lock.Locker
	now    time.Time // the database's time

	depths  []health.Depth
	minutes []admin.Minute
	wrong   []health.Problem
	rates   map[string]rate
}

// A rate is the rate of jobs into a queue between two reads.
type rate struct {
	at       time.Time
	depth    int
	done     int // in the last hour, by the counters
	perMin   float64
	measured bool
}

// New returns a look at the tables of a database.
func New(db *dialect.DB) (l *Look, err error) {
	l = &Look{db: db, rates: map[string]rate{}}
	if l.queues, err = admin.New(db, admin.Options{}); err != nil {
		return nil, err
	}
	l.locks, err = lock.New(db, lock.Options{})
	return l, err
}

// Print prints everything once, for output that is not a terminal.
func (l *Look) Print(ctx context.Context, to io.Writer) error {
	w := bufio.NewWriter(to)
	for i, at := range []place{{view: overviewView}, {view: queuesView}, {view: schedulesView}, {view: locksView}, {view: daemonsView}} {
		s := l.at(ctx, at)
		if s.err != nil {
			return s.err
		}
		if i > 0 {
			fmt.Fprintln(w)
			fmt.Fprintln(w, s.title)
		}
		for _, line := range s.lines {
			if i == 0 && line.also { // it follows in full
				continue
			}
			fmt.Fprintln(w, line.text)
		}
	}
	return w.Flush()
}

// at reads a view.
func (l *Look) at(ctx context.Context, place place) *screen {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s, began := &screen{at: place}, instant.Now()
	l.now, s.err = scheduler.Clock(ctx, l.db)
	s.when = l.now
	if s.err == nil {
		s.err = map[string]func(context.Context, *screen) error{
			overviewView: l.overview, queuesView: l.allQueues, queueView: l.queue, schedulesView: l.schedules,
			runsView: l.runs, locksView: l.allLocks, daemonsView: l.daemons,
		}[place.view](ctx, s)
	}
	s.took = instant.Now().Sub(began)
	return s
}

// until formats the time left until an instant.
func (l *Look) until(at time.Time) string {
	if d := at.Sub(l.now); d > 0 {
		return plain.Span(d)
	}
	return "now"
}

// ago formats the time since an instant.
func (l *Look) ago(at time.Time) string {
	if at.IsZero() {
		return "–"
	}
	return plain.Span(max(0, l.now.Sub(at)))
}

func (l *Look) allLocks(ctx context.Context, s *screen) error {
	s.title = "Locks"
	all, err := l.locks.List(ctx, "", 0, maxRows)
	if err != nil {
		return err
	}
	rows, lines := [][]string{{"LOCK", "SLOT", "STATE", "HOLDER", "SINCE", "LEFT", "FENCE", "TAKEOVERS"}}, []line(nil)
	for i := range all {
		k := &all[i]
		kind, left := plainLine, "–"
		if k.State == lock.Expired {
			kind = oddLine
		}
		if k.Left > 0 {
			left = plain.Span(k.Left)
		}
		rows = append(rows, []string{
			plain.Cut(k.Name, 40), fmt.Sprint(k.Slot), string(k.State), plain.Cut(k.By, 40), l.ago(k.Since), left,
			fmt.Sprint(k.Fence), fmt.Sprint(k.Takeovers),
		})
		lines = append(lines, line{kind: kind})
	}
	s.table(rows, lines)
	return nil
}

func (l *Look) daemons(ctx context.Context, s *screen) error {
	s.title = "Daemons and workers"
	nodes, err := scheduler.Nodes(ctx, l.db, "", health.MostQueues)
	if err != nil {
		return err
	}
	nodes = scheduler.Processes(nodes)
	rows, lines := [][]string{{"PROCESS", "VERSION", "STATE", "UP", "LEASE"}}, []line(nil)
	for i := range nodes {
		n := &nodes[i]
		state, kind, lease := n.State, plainLine, "–"
		switch {
		case n.Live:
			lease = l.until(n.Until)
		case n.State != "gone":
			state, kind, lease = "lost", badLine, l.ago(n.Until)+" ago"
		}
		rows = append(rows, []string{plain.Cut(n.Name, 60), cmp.Or(plain.Cut(n.Version, 20), "–"), state, l.ago(n.Started), lease})
		lines = append(lines, line{kind: kind})
	}
	s.table(rows, lines)
	return nil
}
