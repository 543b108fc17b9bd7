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
)

// backSlack is how much later than the present a row may have been written without the clock having gone back: servers of a cluster may
// differ by less.
const backSlack = 2 * time.Second

// latest are the tables in which a row says when it was last written, which nobody can have done at a time to come.
var latest = []*sqlrun.Stmt{
	sqlrun.SQL("health.latest-schedule", `SELECT COALESCE({us MAX(update_time)}, 0) FROM {prefix}schedule`),
	sqlrun.SQL("health.latest-lock", `SELECT COALESCE({us MAX(update_time)}, 0) FROM {prefix}lock`),
	sqlrun.SQL("health.latest-node", `SELECT COALESCE({us MAX(started_at)}, 0) FROM {prefix}node`),
	sqlrun.SQL("health.latest-block", `SELECT COALESCE({us MAX(lock_at)}, 0) FROM {prefix}queue_block`),
}

// staleLocks are locks that were last taken or renewed at a time to come: their holders have not renewed them since the clock went back.
var staleLocks = sqlrun.SQL("health.stale-locks", `
	SELECT name, {us expire_at} FROM {prefix}lock
	WHERE state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND update_time > {now + :slack} AND expire_at > {now} ORDER BY name LIMIT :limit`)

// aheadOf is the schedule that was last changed at a time to come.
var aheadOf = sqlrun.SQL("health.ahead-of", `SELECT {us update_time}, {us {now}} FROM {prefix}schedule WHERE name = :name`)

// setBack returns by how much the database's clock has gone back, at least: the time that it has to pass until nothing has been written
// later than now. It is 0 if nothing says that it has.
func setBack(ctx context.Context, db *dialect.DB, now time.Time) (back time.Duration, err error) {
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

// wentBack says that the database's clock went back.
func wentBack(by time.Duration) string {
	return "the database's clock went back by " + plain.Span(by) + " or more"
}

// ofSetBack reports that the database's clock went back, or returns nil.
func ofSetBack(ctx context.Context, db *dialect.DB, now time.Time) (*Check, error) {
	back, err := setBack(ctx, db, now)
	if err != nil || back == 0 {
		return nil, err
	}
	c := &Check{
		Name: "clock", Status: Failed,
		Detail: wentBack(back) + ": slots, retries and leases of that time wait until it shows " + plain.Instant(now.Add(back), time.UTC) + " again",
		Advice: "see what set the server's clock, and let NTP slew it; schedules with @every go on; run others now: dbcron schedule run NAME",
	}
	const most = 3
	names, err := sqlrun.Select(ctx, &db.Session, staleLocks, sqlrun.Args{"slack": backSlack.Microseconds(), "limit": most + 1},
		func(rows *sql.Rows) (name string, err error) {
			var until int64
			return name, rows.Scan(&name, &until)
		})
	switch {
	case err != nil && (db.Dialect.Denied(err) || db.Dialect.Missing(err)):
		return c, nil
	case err != nil || len(names) == 0:
		return c, err
	}
	var list []string
	for _, name := range names[:min(len(names), most)] {
		list = append(list, argument(name))
	}
	text := strings.Join(list, ", ")
	if len(names) > most {
		text += " and others"
	}
	c.Detail += "; locks that nobody has renewed since: " + text
	c.Advice += fmt.Sprintf("; free a lock whose holder is dead: dbcron lock release %s --force --reason TEXT", list[0])
	return c, nil
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
			Why:   fmt.Sprintf("%s after its next slot was planned, so it waits until %s", wentBack(back), InZone(e.at.Next, &e.Schedule)),
			Do:    "to run it now: dbcron schedule run " + argument(e.Name) + "; see what set the server's clock: dbcron doctor",
			Until: e.at.Next,
		})
	}
	return nil
}
