package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Limits of queues, kinds and tenants.
var (
	// LimitsOf lists the limits of some queues, and whether a worker waits for a permit.
	LimitsOf = sqlrun.SQL("queue.limits", `
		SELECT queue_id, kind, tenant, COALESCE(max_running, 0), COALESCE(rate, 0), rate_per, burst, waiting_by, CASE WHEN `+waits("")+` THEN 1 ELSE 0 END
		FROM {prefix}queue_limit WHERE {in queue_id :queues} ORDER BY queue_id, kind, tenant`)

	// ListLimits lists the limits of all queues, and how many of their permits are taken;
	// LimitsNamed lists those of one queue.
	ListLimits = sqlrun.SQL("queue.list-limits", limitColumns+`
		WHERE q.name > :after OR q.name = :after AND (l.kind > :kind OR l.kind = :kind AND l.tenant > :tenant) ORDER BY q.name, l.kind, l.tenant LIMIT :limit`)
	LimitsNamed = sqlrun.SQL("queue.limits-named", limitColumns+`
		WHERE q.name = :name ORDER BY l.kind, l.tenant`)

	// InsertLimit runs with the queue locked, like everything that changes limits.
	InsertLimit = sqlrun.SQL("queue.insert-limit", `
		INSERT INTO {prefix}queue_limit (queue_id, kind, tenant, max_running, rate, rate_per, burst) VALUES (:queue, :kind, :tenant, :running, :rate, :per, :burst)`)

	UpdateLimit = sqlrun.SQL("queue.update-limit", `
		UPDATE {prefix}queue_limit SET max_running = :running, rate = :rate, rate_per = :per, burst = :burst, update_time = {now}
		WHERE queue_id = :queue AND kind = :kind AND tenant = :tenant`)

	DeleteLimit = sqlrun.SQL("queue.delete-limit", `DELETE FROM {prefix}queue_limit WHERE queue_id = :queue AND kind = :kind AND tenant = :tenant`)
)

var limitColumns = `
		SELECT q.name, l.kind, l.tenant, COALESCE(l.max_running, 0), COALESCE(l.rate, 0), l.rate_per, l.burst, l.waiting_by,
			CASE WHEN ` + waits("l.") + ` OR EXISTS (SELECT 1 FROM {prefix}queue_tenant AS t
				WHERE t.queue_id = l.queue_id AND (l.tenant = t.tenant OR l.tenant = '*') AND ` + waits("t.") + `) THEN 1 ELSE 0 END,
			(SELECT COUNT(*) FROM {prefix}queue_permit AS p JOIN {prefix}node AS n ON n.name = p.lock_by
				WHERE p.queue_id = l.queue_id AND p.kind = l.kind AND (p.tenant = l.tenant OR l.tenant = '*' AND p.tenant <> '') AND p.state = 'LEASED' AND n.state = 'live')
		FROM {prefix}queue_limit AS l JOIN {prefix}queue AS q ON q.queue_id = l.queue_id`

// A Limit bounds how many jobs of a queue, of one of its kinds, or of a tenant, may run at a time and begin
// in a period. Package admin documents the fields.
type Limit struct {
	Queue   string
	Kind    string
	Tenant  string
	Running int
	Rate    int
	Per     time.Duration
	Burst   int
	Wrong   string
}

// EachTenant stands for each tenant that has no limit of its own: see Limit.Tenant.
const EachTenant = "*"

// MaxRunning is the maximum of Limit.Running.
const MaxRunning = 10_000

// Check returns an [InvalidError] about the first invalid field.
func (l *Limit) Check() error {
	if err := sqlrun.CheckName(l.Queue); err != nil {
		return Invalid("queue", "%v", err)
	}
	if err := sqlrun.CheckName(l.Kind); l.Kind != "" && err != nil {
		return Invalid("kind", "%v", err)
	}
	if err := sqlrun.CheckName(l.Tenant); l.Tenant != "" && err != nil {
		return Invalid("tenant", "%v", err)
	}
	if l.Kind != "" && l.Tenant != "" {
		return Invalid("tenant", "a limit is of a kind or of a tenant, not of both")
	}
	switch {
	case l.Running < 0 || l.Running > MaxRunning:
		return Invalid("running", "%d is not 1 to %d jobs at a time, or 0 for any number; to have none begin, pause the queue",
			l.Running, MaxRunning)
	case l.Rate < 0 || l.Rate > plain.MaxRate:
		return Invalid("rate", "%d is not 1 to %d jobs, or 0 for any number; to have none begin, pause the queue", l.Rate, plain.MaxRate)
	case l.Running == 0 && l.Rate == 0:
		return Invalid("limit", "it limits nothing: say how many jobs may run at a time, or begin in a time, or delete it")
	case l.Per < time.Millisecond || l.Per > plain.MaxRatePer:
		return Invalid("per", "%v is not 1ms to 366 days", l.Per)
	case l.Burst < 1 || l.Burst > plain.MaxRate:
		return Invalid("burst", "%d is not 1 to %d", l.Burst, plain.MaxRate)
	}
	return nil
}

// Args returns the arguments of [InsertLimit] and [UpdateLimit].
func (l *Limit) Args(queue int) sqlrun.Args {
	a := sqlrun.Args{"queue": queue, "kind": l.Kind, "tenant": l.Tenant, "running": nil, "rate": nil, "burst": l.Burst}
	a["per"] = plain.FormatDuration(l.Per)
	if l.Running > 0 {
		a["running"] = l.Running
	}
	if l.Rate > 0 {
		a["rate"] = l.Rate
	}
	return a
}

// A LimitRow is a stored limit.
type LimitRow struct {
	Limit
	QueueID   int
	WaitingBy string // the worker that waits for a permit; "": none
}

// ReadLimits reads the limits of some queues, whose names are given.
func ReadLimits(ctx context.Context, on *sqlrun.Session, names map[int]string) ([]LimitRow, error) {
	args := sqlrun.Args{"queues": IDList(slices.Sorted(maps.Keys(names)))}
	return sqlrun.Select(ctx, on, LimitsOf, args, func(rows *sql.Rows) (l LimitRow, err error) {
		var waits bool
		reading := l.Reading()
		if err = rows.Scan(slices.Concat([]any{&l.QueueID}, reading.Places(), []any{&l.WaitingBy, &waits})...); !waits {
			l.WaitingBy = ""
		}
		l.Queue = names[l.QueueID]
		reading.Done()
		return l, err
	})
}

// IDList returns some queues as an argument.
func IDList(queues []int) []int64 {
	ids := make([]int64, len(queues))
	for i, id := range queues {
		ids[i] = int64(id)
	}
	return ids
}

// A LimitReading reads the columns of a limit, which may have been written by hand. What is wrong with them is in
// [Limit.Wrong]: such a limit lets no job begin, since nobody knows how many were meant.
type LimitReading struct {
	of  *Limit
	row sqlrun.Reading
	per string
}

// Reading reads a row into the limit: give Scan the places, and then call Done.
func (l *Limit) Reading() *LimitReading { return &LimitReading{of: l} }

// Places are those of kind, tenant, max_running, rate, rate_per and burst.
func (r *LimitReading) Places() []any {
	l, row := r.of, &r.row
	return append([]any{row.Into("kind", &l.Kind), row.Into("tenant", &l.Tenant), row.Into("max_running", &l.Running)}, r.RatePlaces()...)
}

// RatePlaces are those of rate, rate_per and burst.
func (r *LimitReading) RatePlaces() []any {
	return []any{r.row.Into("rate", &r.of.Rate), r.row.Into("rate_per", &r.per), r.row.Into("burst", &r.of.Burst)}
}

// Done sets the rest of the limit.
func (r *LimitReading) Done() {
	l, row := r.of, &r.row
	var err error
	switch l.Per, err = plain.ParseDuration(r.per); {
	case slices.Contains(row.Of, "rate_per"):
	case err != nil:
		row.Note("rate_per", err.Error())
	case l.Rate > 0 && l.Per < time.Millisecond:
		row.Note("rate_per", fmt.Sprintf("%q is shorter than 1ms", r.per))
	}
	switch {
	case l.Running < 0 || l.Running > MaxRunning:
		row.Note("max_running", fmt.Sprintf("%d is not 1 to %d", l.Running, MaxRunning))
	case l.Rate < 0:
		row.Note("rate", fmt.Sprintf("%d is negative", l.Rate))
	}
	l.Rate, l.Burst, l.Per = min(l.Rate, plain.MaxRate), min(max(l.Burst, 1), plain.MaxRate), min(l.Per, plain.MaxRatePer)
	l.Wrong = row.Wrong
}

// Applied returns the limit as workers apply it.
func (l Limit) Applied() Limit {
	if l.Wrong != "" {
		l.Running, l.Rate = 0, 0
	}
	return l
}
