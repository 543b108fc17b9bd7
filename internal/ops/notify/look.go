package notify

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	maxLate      = 100 // late schedules per look, those with the oldest slots
	maxRecovered = 1000
	maxQueues    = 1000 // without targets of their own, the first by name
	queuesAtOnce = 1000
	countTo      = 10_000 // limit of a queue's count of dead letters
)

// mayLook reports whether it is this daemon's turn to look.
func (n *Notifier) mayLook(ctx context.Context) (bool, error) {
	if _, err := n.db.Exec(ctx, openBook, nil); err != nil {
		return false, err
	}
	rows, err := n.db.Exec(ctx, takeLook, sqlrun.Args{"ago": -lookEvery.Microseconds(), "ahead": lookEvery.Microseconds()})
	return rows == 1, err
}

// look finds what no transaction could record: recoveries, late schedules, slow runs, and troubles of queues. If two
// daemons look at once, the statements of the second change nothing.
func (n *Notifier) look(ctx context.Context) error {
	for _, part := range []func(context.Context) error{n.lookForRecovered, n.lookForLate, n.lookForSlow, n.lookAtQueues, n.lookAtClock} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	_, err := n.db.Exec(ctx, forget, sqlrun.Args{"day": -(24 * time.Hour).Microseconds()})
	return err
}

func (n *Notifier) lookForRecovered(ctx context.Context) error {
	type row struct {
		name  string
		times int64
	}
	found, err := sqlrun.Select(ctx, &n.db.Session, recovered, sqlrun.Args{"limit": maxRecovered}, func(rows *sql.Rows) (r row, err error) {
		var row sqlrun.Reading
		return r, rows.Scan(row.Into("name", &r.name), row.Into("times", &r.times))
	})
	for _, r := range found {
		if _, err := n.db.Exec(ctx, well, sqlrun.Args{"subject": "schedule", "name": r.name, "times": r.times}); err != nil {
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
	planned, err := scheduler.Upcoming(ctx, n.db, maxLate)
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

func (n *Notifier) lookForSlow(ctx context.Context) error {
	now, err := scheduler.Clock(ctx, n.db)
	if err != nil {
		return err
	}
	slow, err := health.SlowRuns(ctx, n.db, now)
	for i := range slow {
		if err := scheduler.NoteSlow(ctx, &n.db.Session, &slow[i].Schedule, &slow[i].Run, slow[i].Why); err != nil {
			return err
		}
	}
	return err
}

// ofClock names the row of the table notice about the database's clock, whose trouble is that it went back.
var ofClock = subjectOf{"clock", "database"}

// lookAtClock finds that the database's clock went back.
func (n *Notifier) lookAtClock(ctx context.Context) error {
	now, err := scheduler.Clock(ctx, n.db)
	if err != nil {
		return err
	}
	back, err := health.SetBack(ctx, n.db, now)
	if err != nil {
		return err
	}
	all, err := n.known(ctx)
	if err != nil {
		return err
	}
	was, detail, times := all[ofClock], "", int64(0)
	if back > 0 {
		times = 1
		detail = fmt.Sprintf("by %s or more. Schedules with @every go on; other slots, retries and leases of that time last until it shows %s again",
			plain.Span(back), plain.Instant(now.Add(back), time.UTC))
	}
	return n.noteState(ctx, ofClock, "", len(n.opt.Targets) == 0, detail, times, was)
}

// A known is what the table notice says of a queue or the clock.
type known struct {
	times               int64
	target              string
	there, isWell, told bool
}

// A subjectOf names a row of the table notice.
type subjectOf struct{ subject, name string }

// known reads what the table notice says of queues and the clock.
func (n *Notifier) known(ctx context.Context) (map[subjectOf]known, error) {
	all := map[subjectOf]known{}
	_, err := sqlrun.Select(ctx, &n.db.Session, knownStates, nil, func(rows *sql.Rows) (of subjectOf, err error) {
		is := known{there: true}
		var row sqlrun.Reading // written by hand, perhaps
		err = rows.Scan(row.Into("subject", &of.subject), row.Into("name", &of.name), row.Into("times", &is.times), row.Into("target", &is.target), &is.isWell, &is.told)
		all[of] = is
		return of, err
	})
	return all, err
}

// lookAtQueues finds dead letters and queues that lag behind.
func (n *Notifier) lookAtQueues(ctx context.Context) error {
	all, err := n.known(ctx)
	if err != nil {
		return err
	}
	now, err := scheduler.Clock(ctx, n.db)
	if err != nil {
		return err
	}
	for after, left := "", maxQueues; ; {
		queues, err := n.admin.Queues(ctx, after, queuesAtOnce)
		if err != nil {
			return err
		}
		for i := range queues {
			q := &queues[i]
			dead, behind := all[subjectOf{"dead", q.Name}], all[subjectOf{"behind", q.Name}]
			if !n.concerned(q, dead.there || behind.there, &left) {
				continue
			}
			if err := n.lookAtQueue(ctx, q, dead, behind, now); err != nil {
				return err
			}
		}
		if len(queues) < queuesAtOnce {
			return nil
		}
		after = queues[len(queues)-1].Name
	}
}

// concerned reports whether somebody is notified of a queue. left is how many more without own targets are
// looked at, of which there may be any number.
func (n *Notifier) concerned(q *admin.Queue, noticed bool, left *int) bool {
	own, nobody := address.OwnTargets(q.Notify)
	switch {
	case q.Name == Queue || q.State == "deleted":
		return false
	case noticed || own != "":
		return true
	case nobody || len(n.opt.Targets) == 0 || *left == 0:
		return false
	}
	*left--
	return true
}

// lookAtQueue compares a queue with what is known of it.
func (n *Notifier) lookAtQueue(ctx context.Context, q *admin.Queue, dead, behind known, now time.Time) error {
	depths, err := health.Depths(ctx, n.admin, []admin.Queue{*q}, countTo, now)
	if err != nil {
		return err
	}
	d, lags := &depths[0], int64(0)
	if q.State == "active" && q.Wrong == "" && d.Ready > 0 && d.Lag >= n.opt.QueueAge {
		lags = 1
	}
	err = n.noteQueue(ctx, "dead", q, plain.Count(d.Dead, countTo)+" dead letters", int64(d.Dead), dead)
	if err != nil {
		return err
	}
	detail := fmt.Sprintf("%s ready, the oldest for %s", plain.Count(d.Ready, countTo), plain.Span(d.Lag))
	return n.noteQueue(ctx, "behind", q, detail, lags, behind)
}

// noteQueue records the state of a queue; times says how bad it is, 0 meaning well. The queue's own targets may
// have changed since the trouble was noted: who was told stays, and who was not told yet is replaced.
func (n *Notifier) noteQueue(ctx context.Context, subject string, q *admin.Queue, detail string, times int64, was known) (err error) {
	own, nobody := address.OwnTargets(q.Notify)
	return n.noteState(ctx, subjectOf{subject, q.Name}, own, nobody, detail, times, was)
}

// noteState is noteQueue for anything that is looked at. own are its targets, if it has any, or nobody is to be told.
func (n *Notifier) noteState(
	ctx context.Context, of subjectOf, own string, nobody bool, detail string, times int64, was known,
) (err error) {
	args := sqlrun.Args{
		"subject": of.subject, "name": of.name, "detail": detail, "target": own, "times": times, "was": was.times, "tell": 0,
	}
	if times > was.times || was.isWell {
		args["tell"] = 1
	}
	switch {
	case times == 0 && was.there && !was.isWell:
		args["times"] = was.times
		_, err = n.db.Exec(ctx, well, args)
	case times == 0:
	case nobody && was.there && !was.told:
		_, err = n.db.Exec(ctx, unwanted, args)
	case nobody:
	case !was.there:
		_, err = n.db.Exec(ctx, noteState, args)
	case times != was.times || was.isWell || own != was.target:
		_, err = n.db.Exec(ctx, worse, args)
	}
	return err
}
