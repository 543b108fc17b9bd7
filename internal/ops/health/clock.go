package health

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// backSlack is how much later than the present a row may have been written without the clock having gone back: servers of a cluster may
// differ by less.
const backSlack = 2 * time.Second

// latest are the tables in which a row says when it was last written, which nobody can have done at a time to come. What is no time in
// years that others can count, such as infinity on PostgreSQL, is a wrong row and says nothing about the clock.
var latest = []*sqlrun.Stmt{
	sqlrun.SQL("health.latest-schedule", `SELECT COALESCE({us MAX(update_time)}, 0) FROM {prefix}schedule WHERE update_time < {time 253402300799000000}`),
	sqlrun.SQL("health.latest-lock", `SELECT COALESCE({us MAX(update_time)}, 0) FROM {prefix}lock WHERE update_time < {time 253402300799000000}`),
	sqlrun.SQL("health.latest-node", `SELECT COALESCE({us MAX(started_at)}, 0) FROM {prefix}node WHERE started_at < {time 253402300799000000}`),
	sqlrun.SQL("health.latest-block", `SELECT COALESCE({us MAX(lock_at)}, 0) FROM {prefix}queue_block WHERE lock_at < {time 253402300799000000}`),
}

// staleLocks are locks that were last taken or renewed at a time to come: their holders have not renewed them since the clock went back.
var staleLocks = sqlrun.SQL("health.stale-locks", `
	SELECT name, {us expire_at} FROM {prefix}lock
	WHERE state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND update_time > {now + :slack}
		AND expire_at > {now} AND expire_at < {time 253402300799000000} ORDER BY name LIMIT :limit`)

// aheadOf is the schedule that was last changed at a time to come.
var aheadOf = sqlrun.SQL("health.ahead-of", `SELECT {us update_time}, {us {now}} FROM {prefix}schedule WHERE name = :name`)

// leasedUntil is until when a process that was not declared lost has what it has leased.
var leasedUntil = sqlrun.SQL("health.leased-until", `SELECT COALESCE({us MAX(expire_at)}, 0) FROM {prefix}node WHERE name = :name AND state = 'live' AND expire_at < {time 253402300799000000}`)

// SetBack returns by how much the database's clock has gone back, at least: the time that it has to pass until nothing has been written
// later than now. It is 0 if nothing says that it has.
func SetBack(ctx context.Context, db *dialect.DB, now time.Time) (back time.Duration, err error) {
	for _, stmt := range latest {
		var us int64
		err := db.Get(ctx, stmt, nil, &us)
		switch {
		case err != nil && (db.Dialect.Denied(err) || db.Dialect.Missing(err)):
			continue
		case err != nil:
			return 0, err
		}
		if by := time.UnixMicro(us).Sub(now); by > backSlack {
			back = max(back, by)
		}
	}
	return back, nil
}

// WentBack says that the database's clock went back.
func WentBack(by time.Duration) string {
	return "the database's clock went back by " + plain.Span(by) + " or more"
}

// OfClock finds that the database's clock went back.
func OfClock(ctx context.Context, db *dialect.DB, now time.Time) ([]Problem, error) {
	back, err := SetBack(ctx, db, now)
	if err != nil || back == 0 {
		return nil, err
	}
	again := plain.Instant(now.Add(back), time.UTC)
	p := Problem{
		Of: Clock, Bad: true, what: "T" + strings.TrimPrefix(WentBack(back), "t"), change: again,
		Why: "slots, retries and leases of that time last until it shows " + again + " again",
		Do:  "see what set the server's clock, and let NTP slew it; schedules with @every go on; run others now: dbcron schedule run NAME",
	}
	const most = 3
	names, err := sqlrun.Select(ctx, &db.Session, staleLocks, sqlrun.Args{"slack": backSlack.Microseconds(), "limit": most + 1},
		func(rows *sql.Rows) (name string, err error) {
			var until int64
			return name, rows.Scan(&name, &until)
		})
	switch {
	case err != nil && (db.Dialect.Denied(err) || db.Dialect.Missing(err)):
		return []Problem{p}, nil
	case err != nil:
		return nil, err
	case len(names) == 0:
		return []Problem{p}, nil
	}
	var list []string
	for _, name := range names[:min(len(names), most)] {
		list = append(list, argument(name))
	}
	p.Why += "; locks that nobody has renewed since: " + strings.Join(list, ", ")
	if len(names) > most {
		p.Why += " and others"
	}
	p.Why += " (one comes free when its lease has passed since somebody wanted it)"
	p.Do += fmt.Sprintf("; free a lock whose holder is dead: dbcron lock release %s --force --reason TEXT", list[0])
	return []Problem{p}, nil
}

// clockCheck is OfClock as a check of the database, or nil if nothing is wrong.
func clockCheck(ctx context.Context, db *dialect.DB, now time.Time) (*Check, error) {
	wrong, err := OfClock(ctx, db, now)
	if err != nil || len(wrong) == 0 {
		return nil, err
	}
	p := &wrong[0]
	c := Check{Name: string(Clock), Status: Failed, Detail: p.What() + ": " + p.Why, Advice: p.Do}.Of(p)
	return &c, nil
}

// ofClock says of a schedule that waits for its slot that the database's clock went back after the slot was planned.
func (e *scheduleExplainer) ofClock(ctx context.Context) error {
	if e.Schedule.State != "active" || !e.at.Next.After(e.at.Now) {
		return nil
	}
	var written, now int64
	if err := e.db.Get(ctx, aheadOf, sqlrun.Args{"name": e.Name}, &written, &now); err != nil {
		return err
	}
	if back := time.Duration(written-now) * time.Microsecond; back > backSlack {
		e.add(Cause{
			Why:   fmt.Sprintf("%s after its next slot was planned, so it waits until %s", WentBack(back), InZone(e.at.Next, &e.Schedule)),
			Do:    "to run it now: dbcron schedule run " + argument(e.Name) + "; see what set the server's clock: dbcron doctor",
			Until: e.at.Next,
		})
	}
	return nil
}

// ofClock says of a job that waits for its time, or for a worker, that the database's clock went back since that was written.
func (e *jobExplainer) ofClock(ctx context.Context, b *admin.Block) error {
	i := &e.Job
	back, err := SetBack(ctx, e.db, e.Now)
	if err != nil || back == 0 {
		return err
	}
	const look = "see what set the server's clock: dbcron doctor"
	switch delayed := i.State == admin.StateDelayed && i.At.After(e.Now); {
	case delayed && i.Attempts == 0 && i.Enqueued.Sub(e.Now) > backSlack:
		e.add(Cause{Why: WentBack(back) + " after it was enqueued, so it waits for as much longer", Do: look, Until: i.At})
	case delayed && i.Attempts > 0:
		e.add(Cause{Why: WentBack(back) + ": if its last attempt was before, it waits for as much longer", Do: look, Until: i.At})
	case !delayed && b != nil && b.Leased && b.Live:
		var us int64
		if err := e.db.Get(ctx, leasedUntil, sqlrun.Args{"name": b.Worker}, &us); err != nil {
			return err
		}
		// A worker that lives has renewed its lease since, which lasts for seconds.
		if until := time.UnixMicro(us); until.Sub(e.Now) > max(back/2, time.Minute) {
			e.add(Cause{
				Why: fmt.Sprintf("%s, and its worker, %s, has not been heard of since: nobody takes its block over before %s",
					WentBack(back), plain.Line(processOf(b.Worker), 100), plain.Instant(until, time.UTC)),
				Do: look, Until: until,
			})
		}
	}
	return nil
}
