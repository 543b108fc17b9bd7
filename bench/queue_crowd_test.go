package bench

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
)

var (
	crowdSize   = flag.Int("crowd", 1000, "how many workers of one queue TestQueueCrowd starts")
	crowdBlocks = flag.Int("crowd-blocks", 16, "how many blocks the queue of TestQueueCrowd has")
)

// TestQueueCrowd prints what many idle workers of one queue cost the server, and how long they take
// to stop all at once. They belong to ten Clients, each with ten connections, as ten processes have
// them. It fails if one of them lost its lease, or left a block to nobody. Target: 5 s.
func TestQueueCrowd(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		var log warnings
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, *crowdSize)
		began := time.Now()
		for range 10 {
			opt := queue.Options{Blocks: *crowdBlocks, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
			c, err := queue.New(open(t, b.URL, 10), opt)
			if err != nil {
				t.Fatal(err)
			}
			for range *crowdSize / 10 {
				w, err := c.Worker(queue.WorkerOptions{Queues: []string{"crowd"}})
				if err != nil {
					t.Fatal(err)
				}
				if err := w.HandleOthers(func(context.Context, *queue.Delivery) error { return nil }); err != nil {
					t.Fatal(err)
				}
				go func() { ended <- w.Run(ctx) }()
			}
		}
		for b.leased(t) < int64(min(*crowdSize, *crowdBlocks)) && time.Since(began) < time.Minute {
			pause(t, 100*time.Millisecond)
		}
		ready := time.Since(began)
		pause(t, 20*time.Second) // until they are idle
		before, commits, from := b.cpu(t), b.commits(t), time.Now()
		pause(t, *span)
		took := time.Since(from)
		u := b.cpu(t).since(before, 1)
		sent := perSecond(b.commits(t)-commits, took)
		from = time.Now()
		cancel()
		for range *crowdSize / 10 * 10 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		stopped := time.Since(from)
		t.Logf("%-8s %5d workers, %d blocks: %.1f transactions/s; CPU of client and server %.1f + %.1f ms/s; began in %.1f s, ended in %.1f s",
			b.Dialect.Name, *crowdSize, *crowdBlocks, sent, 1e3*u.client.Seconds()/took.Seconds(), 1e3*u.server.Seconds()/took.Seconds(),
			ready.Seconds(), stopped.Seconds())
		for _, text := range []string{"the lease was lost", "did not renew its lease", "was taken away", "leaving failed", "handing blocks over failed"} {
			if n := log.count(text); n > 0 {
				t.Errorf("logged %d times: %s", n, log.first(text))
			}
		}
		if n := b.leased(t); n != 0 {
			t.Errorf("%d blocks are leased by nobody who runs", n)
		}
	})
}

// warnings collects what is logged.
type warnings struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *warnings) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(line)
}

// first returns the first line with a text.
func (w *warnings) first(text string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range bytes.Lines(w.text.Bytes()) {
		if bytes.Contains(line, []byte(text)) {
			return string(line)
		}
	}
	return ""
}

func (w *warnings) count(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Count(w.text.Bytes(), []byte(text))
}
