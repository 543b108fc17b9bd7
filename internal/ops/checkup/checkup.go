// Package checkup examines the work in a database for dbcron doctor, from the queues to the tokens. The database itself
// is examined by package health.
package checkup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// Work examines what the database is used for. It skips what the user may not read, which another check
// reports.
func Work(ctx context.Context, db *dialect.DB) (rows []health.Check) {
	now, err := scheduler.Clock(ctx, db)
	if err != nil {
		return []health.Check{warning("work", err.Error(), "try again when the database answers")}
	}
	idle := false // no daemon is at work, as another check says
	jobs := 0     // that wait for a worker, of which no other check says so
	for _, part := range []struct {
		name string
		look func() (fine string, wrong []health.Problem, err error)
	}{
		{"schedules", func() (string, []health.Problem, error) {
			wrong, _, err := health.OfSchedules(ctx, db, now, 0)
			idle = slices.ContainsFunc(wrong, func(p health.Problem) bool { return p.Of == health.Processes })
			return "none is late, and none was given up", wrong, err
		}},
		{"runs", func() (string, []health.Problem, error) {
			wrong, err := health.OfRuns(ctx, db, now)
			return "none went wrong in the last day", wrong, err
		}},
		{"files", func() (fine string, wrong []health.Problem, err error) {
			wrong, files, err := health.OfFiles(ctx, db)
			if files > 0 {
				fine = plain.Plural(files, "file of schedules was", "files of schedules were") + " imported, the same by all daemons that have it"
			}
			return fine, wrong, err
		}},
		{"rows", func() (string, []health.Problem, error) {
			c, err := admin.New(db, admin.Options{})
			if err != nil {
				return "", nil, err
			}
			wrong, err := health.OfRows(ctx, db, c)
			return "", wrong, err
		}},
		{"queues", func() (fine string, wrong []health.Problem, err error) {
			fine, jobs, wrong, err = examineQueues(ctx, db, now)
			return fine, wrong, err
		}},
		{"endpoints", func() (string, []health.Problem, error) {
			wrong, answered, err := health.OfEndpoints(ctx, db, now)
			fine := ""
			if answered > 0 {
				fine = plain.Plural(answered, "endpoint", "endpoints") + " answered in the last hour, and none fails or pushes back"
			}
			return fine, wrong, err
		}},
		{"processes", func() (string, []health.Problem, error) { return examineProcesses(ctx, db, now, idle, jobs) }},
	} {
		well, wrong, err := part.look()
		switch {
		case err != nil && db.Dialect.Denied(err):
			rows = append(rows, fine(part.name, "not checked: this user may not read the tables that it takes"))
		case err != nil:
			rows = append(rows, warning(part.name, err.Error(), "try again; if it persists, report it as a bug"))
		case len(wrong) == 0 && well != "":
			rows = append(rows, fine(part.name, well))
		}
		for i := range wrong {
			rows = append(rows, workRow(part.name, &wrong[i], now))
		}
	}
	return append(rows, examineTokens(ctx, db, now)...)
}

// workRow is the line about a problem. A run or process that has ended is a warning: all may be fine by now.
func workRow(check string, p *health.Problem, now time.Time) health.Check {
	row := warning(check, p.What(), p.Do)
	if p.Bad && p.Of != health.Runs {
		row.Status = health.Failed
	}
	if p.Why != "" {
		row.Detail += ": " + p.Why
	}
	if !p.Since.IsZero() {
		row.Detail += fmt.Sprintf(" (%s ago)", plain.Span(max(0, now.Sub(p.Since))))
	}
	return row.Of(p)
}

// examineQueues also returns how many jobs have not ended, unless something is wrong with queues, which says more.
func examineQueues(ctx context.Context, db *dialect.DB, now time.Time) (fine string, jobs int, wrong []health.Problem, err error) {
	c, err := admin.New(db, admin.Options{})
	if err != nil {
		return "", 0, nil, err
	}
	depths, _, wrong, err := health.AllQueues(ctx, db, c, now)
	fine = "there is none"
	if len(depths) > 0 {
		fine = plain.Plural(len(depths), "queue", "queues") + ", none of them behind or paused; no job that died in the last day is left"
	}
	for _, d := range depths {
		if len(wrong) == 0 {
			jobs += d.Ready + d.Delayed + d.Running
		}
	}
	return fine, jobs, wrong, err
}

// examineProcesses is told whether another check says that no daemon is at work, and how many jobs have not ended.
func examineProcesses(ctx context.Context, db *dialect.DB, now time.Time, idle bool, jobs int) (string, []health.Problem, error) {
	wrong, live, err := health.OfProcesses(ctx, db, now)
	switch {
	case live == 0 && idle:
		return "", wrong, err
	case live == 0 && jobs > 0:
		return "", append(wrong, health.NobodyAtWork(jobs)), err
	case live == 0:
		return "no daemon or worker is at work, and there is nothing to do for one", wrong, err
	}
	return plain.Plural(live, "daemon or worker is", "daemons and workers are") + " at work", wrong, err
}

// examineTokens finds tokens that expire soon.
func examineTokens(ctx context.Context, db *dialect.DB, now time.Time) (rows []health.Check) {
	tokens, err := httpapi.NewTokens(db).List(ctx)
	if err != nil {
		return nil // whoever may not read tokens has none to renew
	}
	for _, t := range tokens {
		if t.Wrong != "" {
			rows = append(rows, warning(
				"tokens", fmt.Sprintf("the row of token %s is wrong: %s", plain.Clean(t.Name), plain.Cut(t.Wrong, 200)),
				"make another one: dbcron token create; then: dbcron token revoke "+plain.Clean(t.Name),
			))
		}
		if trouble := t.Trouble(now); trouble != "" {
			rows = append(rows, warning(
				"tokens", fmt.Sprintf("token %s %s", plain.Clean(t.Name), trouble),
				"its users need another one: dbcron token create",
			))
		}
	}
	return rows
}

func fine(name, detail string) health.Check {
	return health.Check{Name: name, Status: health.OK, Detail: detail}
}

func warning(name, detail, advice string) health.Check {
	return health.Check{Name: name, Status: health.Warning, Detail: detail, Advice: advice}
}
