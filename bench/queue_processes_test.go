package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
)

func init() {
	for _, n := range []int{1, 10, 60} {
		roles[idleRole(n)] = func(ctx context.Context, db *dialect.DB) error {
			c, err := queue.New(db, queue.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			ended := make(chan error, n)
			for i := range n {
				w, err := c.Worker(queue.WorkerOptions{Queues: []string{"idle" + strconv.Itoa(i%10)}})
				if err == nil {
					err = w.HandleOthers(func(context.Context, *queue.Delivery) error { return nil })
				}
				if err != nil {
					return err
				}
				go func() { ended <- w.Run(ctx) }()
			}
			return <-ended
		}
	}
}

func idleRole(workers int) string { return fmt.Sprintf("%d idle queue workers", workers) }

// TestQueueProcesses prints what sixty idle workers of ten queues cost in one, six and sixty processes: connections, and statements
// a second, by the server's counters.
func TestQueueProcesses(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		if b.Engine == "sqlite" {
			t.Skip("it has no connections")
		}
		c := client(t, b)
		for i := range 10 {
			j := job(i)
			j.Queue = "idle" + strconv.Itoa(i)
			if _, err := c.Enqueue(t.Context(), j); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []int{60, 10, 1} {
			var all []*child
			before := b.connections(t)
			for range 60 / n {
				all = append(all, start(t, idleRole(n), b.URL))
			}
			pause(t, 30*time.Second) // until they share the blocks, and are idle
			counted, from := b.statements(t), time.Now()
			pause(t, 4**span)
			sent, open := perSecond(b.statements(t)-counted, time.Since(from)), b.connections(t)-before
			for _, c := range all {
				c.kill()
			}
			t.Logf("%-8s %2d processes of %2d workers: %d connections, %.0f statements/s", b.Engine, 60/n, n, open, sent)
			pause(t, 12*time.Second) // their leases end
		}
	})
}

// connections returns how many connections to the database there are.
func (b *bed) connections(t *testing.T) int {
	t.Helper()
	query := `SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()`
	if b.Dialect.Notify != nil {
		query = `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()`
	}
	n, _ := strconv.Atoi(b.List(t, query, nil)[0])
	return n
}

// statements returns how many statements the server has answered: on PostgreSQL, which does not count them, transactions.
func (b *bed) statements(t *testing.T) int64 {
	t.Helper()
	if b.Dialect.Notify != nil {
		n, _ := strconv.ParseInt(b.List(t, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`, nil)[0], 10, 64)
		return n
	}
	_, count, _ := strings.Cut(strings.Join(strings.Fields(b.List(t, `SHOW GLOBAL STATUS LIKE 'Questions'`, nil)[0]), " "), " ")
	n, _ := strconv.ParseInt(count, 10, 64)
	return n
}
