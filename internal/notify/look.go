package notify

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	mostLate      = 100 // late schedules per look, those with the oldest slots
	mostRecovered = 1000
	mostQueues    = 1000
	countTo       = 10_000 // limit of a queue's count of dead letters
)

// mayLook reports whether it is this daemon's turn to look.
func (n *Notifier) mayLook(ctx context.Context) (bool, error) {
	if _, err := n.db.Exec(ctx, openBook, nil); err != nil {
		return false, err
	}
	rows, err := n.db.Exec(ctx, takeLook, dialect.Args{"ago": -lookEvery.Microseconds()})
	return rows == 1, err
}

// look finds what no transaction could record: recoveries, late schedules, and troubles of queues. If two
// daemons look at once, the statements of the second change nothing.
func (n *Notifier) look(ctx context.Context) error {
	for _, part := range []func(context.Context) error{n.lookForRecovered, n.lookForLate, n.lookAtQueues} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	_, err := n.db.Exec(ctx, forget, dialect.Args{"day": -(24 * time.Hour).Microseconds()})
	return err
}

func (n *Notifier) lookForRecovered(ctx context.Context) error {
	type row struct {
		name  string
		times int64
	}
	found, err := dialect.Select(ctx, &n.db.Session, recovered, dialect.Args{"limit": mostRecovered}, func(rows *sql.Rows) (r row, err error) {
		return r, rows.Scan(&r.name, &r.times)
	})
	for _, r := range found {
		if _, err := n.db.Exec(ctx, well, dialect.Args{"subject": "schedule", "name": r.name, "times": r.times}); err != nil {
			return err
		}
	}
	return err
}

func (n *Notifier) lookForLate(ctx context.Context) error {
	now, err := scheduler.Clock(ctx, n.db)
	if err != nil {
		return err
	}
	planned, err := scheduler.Upcoming(ctx, n.db, mostLate)
	if err != nil {
		return err
	}
	for i := range planned {
		why := health.Lateness(&planned[i], now)
		if why == "" || now.Sub(planned[i].Due) < planned[i].Jitter+time.Minute {
			continue
		}
		if err := scheduler.NoteLate(ctx, &n.db.Session, &planned[i].Schedule, why); err != nil {
			return err
		}
	}
	return nil
}

// lookAtQueues finds dead letters and queues that lag behind. Without targets it does nothing.
func (n *Notifier) lookAtQueues(ctx context.Context) error {
	if len(n.opt.Targets) == 0 {
		return nil
	}
	type key struct{ subject, name string }
	type state struct {
		times int64
		well  bool
	}
	known := map[key]state{}
	_, err := dialect.Select(ctx, &n.db.Session, ofQueues, nil, func(rows *sql.Rows) (k key, err error) {
		var s state
		err = rows.Scan(&k.subject, &k.name, &s.times, &s.well)
		known[k] = s
		return k, err
	})
	if err != nil {
		return err
	}
	now, err := scheduler.Clock(ctx, n.db)
	if err != nil {
		return err
	}
	queues, err := n.queues.Queues(ctx, "", mostQueues)
	if err != nil {
		return err
	}
	for i := range queues {
		q := &queues[i]
		if q.Name == Queue || q.State == "deleted" {
			continue
		}
		counts, oldest, err := n.queues.CountAndOldest(ctx, q.Name, countTo)
		if err != nil {
			return err
		}
		behind := int64(0)
		if age := now.Sub(oldest); q.State == "active" && !oldest.IsZero() && age >= n.opt.QueueAge {
			behind = 1
		}
		for _, one := range []struct {
			subject, detail string
			times           int64
		}{
			{"dead", plain.Count(counts.Dead, countTo) + " dead letters", int64(counts.Dead)},
			{"behind", fmt.Sprintf("%s ready, the oldest for %s", plain.Count(counts.Ready, countTo), plain.Span(now.Sub(oldest))), behind},
		} {
			was, there := known[key{one.subject, q.Name}]
			if err := n.noteQueue(ctx, one.subject, q, one.detail, one.times, was.times, there, was.well); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteQueue records the state of a queue; times says how bad it is, 0 meaning well.
func (n *Notifier) noteQueue(ctx context.Context, subject string, q *queue.Queue, detail string, times,
	was int64, there, wasWell bool,
) (err error) {
	args := dialect.Args{"subject": subject, "name": q.Name, "detail": detail, "times": times, "was": was, "tell": 0}
	if times > was || wasWell {
		args["tell"] = 1
	}
	switch {
	case times == 0 && there && !wasWell:
		args["times"] = was
		_, err = n.db.Exec(ctx, well, args)
	case times == 0:
	case !there:
		_, err = n.db.Exec(ctx, noteQueue, args)
	case times != was || wasWell:
		_, err = n.db.Exec(ctx, worse, args)
	}
	return err
}
