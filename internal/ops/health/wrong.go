package health

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// maxRows limits the rows of a table that are looked at.
const maxRows = 10_000

// A wrongRow is a row of a table that a person may write, and that means nothing.
type wrongRow struct {
	table string   // without the prefix
	key   []string // a column and its value, and so on
	wrong string   // column: problem
	then  string   // what follows
	do    string   // what repairs it; "": an UPDATE
}

// problem returns the finding. A column that no command sets is set where it was written.
func (r *wrongRow) problem(db *dialect.DB) Problem {
	column, _, _ := strings.Cut(r.wrong, ":")
	var named, where []string
	plainNames := true
	for i := 0; i < len(r.key); i += 2 {
		named = append(named, plain.Clean(r.key[i+1]))
		where = append(where, r.key[i]+" = '"+strings.ReplaceAll(plain.Clean(r.key[i+1]), "'", "''")+"'")
		plainNames = plainNames && (r.key[i+1] == "" || sqlrun.CheckName(r.key[i+1]) == nil)
	}
	table := db.Prefix() + r.table
	p := Problem{
		Of: Rows, Name: strings.TrimSpace(strings.Join(named, " ")), what: "The row of " + table + " about %s is wrong", change: r.wrong, Bad: true,
		Why: plain.Cut(r.wrong, 200) + "; " + r.then, Do: r.do,
	}
	if r.do == "" || !plainNames {
		p.Do = fmt.Sprintf("correct it in SQL: UPDATE %s SET %s = … WHERE %s", table, column, strings.Join(where, " AND "))
	}
	return p
}

// OfRows finds rows that mean nothing in the tables that a person may write. Each is out of service by itself: those beside it are
// in use. Schedules have a state for that, and endpoints a check of their own.
func OfRows(ctx context.Context, db *dialect.DB, c *admin.Client) (all []Problem, err error) {
	for _, look := range []func(context.Context, *dialect.DB, *admin.Client, func(wrongRow)) error{
		wrongQueues, wrongLimits, wrongShares, wrongRoutes, wrongSubscriptions, wrongLocks, wrongNodes, wrongNotices,
		unreadable,
	} {
		var found []Problem
		err := look(ctx, db, c, func(r wrongRow) {
			if r.wrong != "" && len(found) < maxListed {
				found = append(found, r.problem(db))
			}
		})
		all = append(all, cut(found, "row of such a table is wrong", "rows of such a table are wrong", "correct these first; dbcron doctor then names the others")...)
		if err != nil && !db.Dialect.Denied(err) && !db.Dialect.Missing(err) { // which is told by the check of the tables
			return all, err
		}
	}
	return all, nil
}

func wrongQueues(ctx context.Context, _ *dialect.DB, c *admin.Client, found func(wrongRow)) error {
	queues, err := c.Queues(ctx, "", maxRows)
	for i := range queues {
		q := &queues[i]
		if q.State == "deleted" {
			continue
		}
		column, _, _ := strings.Cut(q.Wrong, ":")
		r := wrongRow{table: "queue", key: []string{"name", q.Name}, wrong: q.Wrong, then: "its jobs wait until it is repaired"}
		if s := setting.Named(admin.Settings(), column); s != nil {
			r.do = fmt.Sprintf("set what is meant, such as: dbcron queue set %s --%s %s", argument(q.Name), s.Flag(), argument(s.Usual))
		} else if column == "state" {
			r.do = "dbcron queue resume " + argument(q.Name)
		}
		found(r)
	}
	return err
}

func wrongLimits(ctx context.Context, _ *dialect.DB, c *admin.Client, found func(wrongRow)) error {
	limits, err := c.Limits(ctx, admin.Limit{}, maxRows)
	for i := range limits {
		l := &limits[i]
		of := argument(l.Queue)
		r := wrongRow{table: "queue_limit", wrong: l.Wrong, then: "none of the jobs that it limits begins until it is repaired"}
		r.key = []string{"queue_id", l.Queue}
		if l.Kind != "" {
			r.key, of = append(r.key, "kind", l.Kind), of+" --kind "+argument(l.Kind)
		}
		if l.Tenant != "" {
			r.key, of = append(r.key, "tenant", l.Tenant), of+" --tenant "+argument(l.Tenant)
		}
		r.do = fmt.Sprintf("set it anew: dbcron limit set %s --rate 10/1m, or delete it: dbcron limit delete %s", of, of)
		found(r)
	}
	return err
}

func wrongShares(ctx context.Context, db *dialect.DB, c *admin.Client, found func(wrongRow)) error {
	queues, err := c.Queues(ctx, "", MostQueues)
	for i := range queues {
		if !queues[i].Fair {
			continue
		}
		shares, err := c.Shares(ctx, queues[i].Name, "", maxRows)
		if err != nil {
			return err
		}
		for _, s := range shares {
			found(wrongRow{
				table: "queue_share", key: []string{"queue_id", s.Queue, "tenant", s.Tenant}, wrong: s.Wrong,
				then: "the tenant has the nearest weight from 1 to 1000 until it is repaired",
				do:   fmt.Sprintf("set what is meant, such as: dbcron share set %s %s 1", argument(s.Queue), argument(s.Tenant)),
			})
		}
	}
	return err
}

func wrongRoutes(ctx context.Context, _ *dialect.DB, c *admin.Client, found func(wrongRow)) error {
	routes, err := c.Routes(ctx, "", maxRows)
	for _, r := range routes {
		found(wrongRow{
			table: "route", key: []string{"kind", r.Kind}, wrong: r.Wrong,
			then: "jobs of the kind that name no queue are refused until it is repaired",
			do:   fmt.Sprintf("set what is meant, such as: dbcron route set %s default", argument(r.Kind)),
		})
	}
	return err
}

func wrongSubscriptions(ctx context.Context, _ *dialect.DB, c *admin.Client, found func(wrongRow)) error {
	all, err := c.Subscriptions(ctx, admin.Subscription{}, maxRows)
	for _, s := range all {
		found(wrongRow{
			table: "topic_queue", key: []string{"topic", s.Topic, "queue", s.Queue}, wrong: s.Wrong,
			then: "it gets no copies, and the topic's other queues get theirs",
			do:   fmt.Sprintf("remove it: dbcron topic unsubscribe %s %s", argument(s.Topic), argument(s.Queue)),
		})
	}
	return err
}

func wrongLocks(ctx context.Context, db *dialect.DB, _ *admin.Client, found func(wrongRow)) error {
	locker, err := lock.New(db, lock.Options{})
	if err != nil {
		return err
	}
	all, err := locker.List(ctx, "", -1, maxRows)
	for i := range all {
		l := &all[i]
		found(wrongRow{
			table: "lock", key: []string{"name", l.Name, "slot", fmt.Sprint(l.Slot)}, wrong: l.Wrong,
			then: "it may be that nobody gets it until it is repaired",
			do:   fmt.Sprintf("free it once nobody works under it: dbcron lock release %s --slot %d --force --reason 'its row is wrong'", argument(l.Name), l.Slot),
		})
	}
	return err
}

func wrongNodes(ctx context.Context, db *dialect.DB, _ *admin.Client, found func(wrongRow)) error {
	all, err := scheduler.Nodes(ctx, db, "", maxNodes)
	for i := range all {
		n := &all[i]
		found(wrongRow{
			table: "node", key: []string{"name", n.Name}, wrong: n.Wrong, then: "what the process holds may not become free when it ends",
			do: fmt.Sprintf("end that process, and then: UPDATE %snode SET state = 'lost' WHERE name = '%s'", db.Prefix(), strings.ReplaceAll(plain.Clean(n.Name), "'", "''")),
		})
	}
	return err
}

// listNotices lists all notices; there is one for each problem.
var listNotices = sqlrun.SQL("health.notices", `
	SELECT subject, name, problem, run_id, times, `+sqlrun.Seen("due_at")+`, `+sqlrun.Seen("begun_at")+`,
		`+sqlrun.Seen("last_at")+`, `+sqlrun.Seen("tell_at")+`, `+sqlrun.Seen("told_at")+`, `+sqlrun.Seen("well_at")+`
	FROM {prefix}notice ORDER BY subject, name LIMIT :limit`)

func wrongNotices(ctx context.Context, db *dialect.DB, _ *admin.Client, found func(wrongRow)) error {
	all, err := sqlrun.Select(ctx, &db.Session, listNotices, sqlrun.Args{"limit": maxRows}, func(rows *sql.Rows) (w wrongRow, err error) {
		var row sqlrun.Reading
		var subject, name, problem string
		var run, times, due, begun, last, tell, told, well int64
		err = rows.Scan(row.Into("subject", &subject), row.Into("name", &name), row.Into("problem", &problem), row.Into("run_id", &run),
			row.Into("times", &times), row.Instant("due_at", &due), row.Instant("begun_at", &begun), row.Instant("last_at", &last),
			row.Instant("tell_at", &tell), row.Instant("told_at", &told), row.Instant("well_at", &well))
		if !slices.Contains([]string{"schedule", "dead", "behind"}, subject) {
			row.Note("subject", fmt.Sprintf("%.40q is none of schedule, dead, behind", subject))
		}
		if err := sqlrun.CheckName(name); err != nil {
			row.Note("name", err.Error())
		}
		if run < 0 {
			row.Note("run_id", fmt.Sprintf("%d is negative", run))
		}
		if times < 0 {
			row.Note("times", fmt.Sprintf("%d is negative", times))
		}
		return wrongRow{
			table: "notice", key: []string{"subject", subject, "name", name}, wrong: row.Wrong,
			then: "its notification may be wrong, or never come",
			do: fmt.Sprintf("delete it, and the problem is noted anew if it lasts: DELETE FROM %snotice WHERE subject = '%s' AND name = '%s'", db.Prefix(),
				strings.ReplaceAll(plain.Clean(subject), "'", "''"), strings.ReplaceAll(plain.Clean(name), "'", "''")),
		}, err
	})
	for _, w := range all {
		found(w)
	}
	return err
}

// unreadable finds rows of jobs that no worker can ever read.
func unreadable(ctx context.Context, db *dialect.DB, c *admin.Client, found func(wrongRow)) error {
	places, err := c.Unreadable(ctx, maxListed)
	for i := range places {
		u := &places[i]
		table, where := "job", fmt.Sprintf("queue_id = %d AND divided = %d", u.Number, u.Block)
		if u.State == admin.StateDelayed {
			table = "job_delayed"
		}
		named := u.Queue
		if sqlrun.CheckName(named) != nil {
			named = fmt.Sprint(u.Number)
		}
		column, _, _ := strings.Cut(u.Wrong, ":")
		value := "…, divided = …"
		switch column {
		case "priority":
			value, where = "2", where+fmt.Sprintf(" AND priority = %d", u.Priority)
		case "divided":
			value = fmt.Sprintf("(SELECT MAX(divided) FROM %squeue_block WHERE queue_id = %d)", db.Prefix(), u.Number)
		}
		found(wrongRow{
			table: table, key: []string{"queue", named, "id", fmt.Sprint(u.Job)}, wrong: u.Wrong,
			then: "no worker can ever read it, nor others like it",
			do: fmt.Sprintf("correct them in SQL, and workers begin them within a minute: UPDATE %s%s SET %s = %s WHERE %s AND id > 0",
				db.Prefix(), table, column, value, where),
		})
	}
	return err
}
