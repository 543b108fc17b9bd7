package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
)

// A storage may forget the last commits, or everything, when the server loses power or crashes.
type storage struct {
	name    string
	setting string // for the connections
	on, off string // statements that make it so and undo that
}

var volatile = map[string][]storage{
	"postgres": {
		{name: "UNLOGGED", on: `ALTER TABLE {prefix}job SET UNLOGGED`, off: `ALTER TABLE {prefix}job SET LOGGED`},
		{name: "synchronous_commit=off", setting: "synchronous_commit=off"},
	},
	"mysql": {
		{
			name: "flush_log_at_trx_commit=2", on: `SET GLOBAL innodb_flush_log_at_trx_commit = 2`,
			off: `SET GLOBAL innodb_flush_log_at_trx_commit = 1`,
		},
	},
}

// TestQueueVolatile prints what storage that is not durable would gain.
func TestQueueVolatile(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		if b.Dialect.Name == "sqlite" {
			t.Skip("the file is synchronized by the engine's own default")
		}
		for _, what := range []struct {
			name         string
			workers, per int
		}{{"Enqueue, 1 goroutine", 1, 1}, {"Enqueue, 32 goroutines", 32, 1}, {"EnqueueMany of 1000, 1 goroutine", 1, bulk}} {
			b.ways(t, what.name, func(t *testing.T, p *ours) float64 {
				t.Helper()
				do := singles(p)
				if what.per > 1 {
					do = contestantOf(p, func(ctx context.Context, n int) error { return p.many(ctx, n, what.per) })
				}
				return contest(t, p.bed, what.workers, what.per, []contestant{do})[0].value
			})
		}
		b.ways(t, fmt.Sprintf("drain of %d", *jobs), func(t *testing.T, p *ours) float64 {
			t.Helper()
			return drain(t, p, *jobs)
		})
	})
}

// ways measures with durable storage, before and after, and with each other kind.
func (b *bed) ways(t *testing.T, what string, measure func(t *testing.T, p *ours) float64) {
	t.Helper()
	durable := measure(t, newOurs(t, b, "durable", queue.WorkerOptions{}))
	figures := []figure{{name: "durable"}}
	for _, s := range volatile[b.Dialect.Name] {
		bed := b
		if s.setting != "" {
			url := b.URL + map[bool]string{true: "&", false: "?"}[strings.Contains(b.URL, "?")] + s.setting
			copied := *b
			bed = &copied
			bed.DB = dbtest.Open(t, url, dialect.Options{})
		}
		if s.on != "" {
			b.Do(t, s.on, nil)
		}
		figures = append(figures, figure{s.name, measure(t, newOurs(t, bed, s.name, queue.WorkerOptions{}))})
		if s.off != "" {
			b.Do(t, s.off, nil)
		}
	}
	figures[0].value = (durable + measure(t, newOurs(t, b, "durable", queue.WorkerOptions{}))) / 2
	report(t, b, what, figures)
}
