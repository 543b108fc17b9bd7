package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// TestSmallPackets uses servers that take statements of 64 KiB, or 1 MiB, at most, for everything that carries
// many values or large ones: each statement fits, however many callers share it, and of several jobs only
// one that fits in none is refused. The class: a limit that is checked for each part and not for the sum.
//
// It runs only with -minutes: see "make faults".
func TestSmallPackets(t *testing.T) {
	if *minutes == 0 {
		t.Skip("it starts servers of its own: make faults")
	}
	t.Parallel()
	for _, s := range servers {
		if s.name == "postgres" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			db, server := s.migrated(t)
			for _, packet := range []int{64 << 10, 1 << 20} {
				t.Run(fmt.Sprint(packet), func(t *testing.T) {
					db.Do(t, fmt.Sprintf("SET GLOBAL max_allowed_packet = %d", packet), nil)
					usePackets(t, dbtest.Open(t, server.URL(), dialect.Options{MaxConns: 30}), packet)
				})
			}
		})
	}
}

// usePackets has jobs of sizes that fit one by one, and fewer than all together.
func usePackets(t *testing.T, db *dbtest.DB, packet int) {
	name := fmt.Sprint("of ", packet)
	c, err := queue.New(db.DB, queue.Options{Blocks: 4, Logger: dbtest.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := admin.New(db.DB, admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ops.Edit(t.Context(), name, func(q *admin.Queue) { q.MaxAttempts, q.RetryDelay, q.KeepDone = 2, time.Millisecond, time.Hour }); err != nil {
		t.Fatal(err)
	}
	payload := []byte(`"` + strings.Repeat(`'x\"`, packet/40) + `"`)
	job := func(kind string) queue.Job { return queue.Job{Kind: kind, Queue: name, Payload: payload} }
	many := slices.Repeat([]queue.Job{job("x")}, 300)
	for i := range many {
		many[i].Delay = time.Duration(i%2) * time.Millisecond
		if i%3 == 0 {
			many[i].Unique = fmt.Sprint(i, strings.Repeat("u", 150))
		}
	}
	enqueued := 0
	if all, err := c.EnqueueMany(t.Context(), many); err != nil {
		t.Error(err)
	} else {
		enqueued += len(all)
	}
	if all, err := c.EnqueueMany(t.Context(), slices.Repeat([]queue.Job{job("fails")}, 300)); err != nil { // by one statement, if it could
		t.Error(err)
	} else {
		enqueued += len(all)
	}
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for i := range 20 {
				if i == 10 {
					huge := job("x")
					huge.Payload, huge.Binary = bytes.Repeat([]byte("'"), packet/2), true
					if _, err := c.Enqueue(t.Context(), huge); !errors.Is(err, queue.ErrTooLarge) {
						t.Errorf("a job that fits in no statement: %v", err)
					}
				}
				_, err := c.Enqueue(t.Context(), job("keeps"))
				mu.Lock()
				if enqueued++; err != nil {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{name}, Concurrency: 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.HandleOthers(func(ctx context.Context, d *queue.Delivery) error {
		switch {
		case !bytes.Equal(d.Payload, payload):
			t.Errorf("a payload of %d bytes", len(d.Payload))
		case d.Kind == "fails":
			return errors.New(strings.Repeat("\n\"", 2000))
		case d.Kind == "keeps" && d.ID%8 == 0:
			return d.SetProgress(ctx, queue.Progress{State: payload, Message: strings.Repeat("'", 1000)})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var ran sync.WaitGroup
	ran.Go(func() { _ = w.Run(ctx) })
	dbtest.Eventually(t, "all jobs have ended", func() bool {
		n, err := ops.Count(t.Context(), name, 2000)
		return err == nil && n.Dead == 300 && n.Done == enqueued-300
	})
	stop()
	ran.Wait()
	if _, err := ops.Bulk(t.Context(), admin.BulkRetry, admin.Filter{Queue: name}, admin.BulkOptions{}); err != nil {
		t.Error(err)
	}
}
