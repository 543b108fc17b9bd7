package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
)

var (
	crowdSize   = flag.Int("crowd", 1000, "how many workers of one queue TestQueueCrowd starts")
	crowdBlocks = flag.Int("crowd-blocks", 16, "how many blocks the queue of TestQueueCrowd has")
)

// crowdProcesses is how many processes the workers are divided between.
const crowdProcesses = 10

// crowdVariable passes the numbers of workers and blocks to a process of the crowd.
const crowdVariable = "DBCRON_BENCH_CROWD"

// crowdRole is a process with its part of the workers. It ends them at SIGTERM, and prints what was
// logged about leases before it says that they have ended.
func crowdRole(ctx context.Context, db *dialect.DB) error {
	var size, blocks int
	if _, err := fmt.Sscan(os.Getenv(crowdVariable), &size, &blocks); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	var log warnings
	opt := queue.Options{Blocks: blocks, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	c, err := queue.New(db, opt)
	if err != nil {
		return err
	}
	ended := make(chan error, size)
	for range size {
		w, err := c.Worker(queue.WorkerOptions{Queues: []string{"crowd"}})
		if err == nil {
			err = w.HandleOthers(func(context.Context, *queue.Delivery) error { return nil })
		}
		if err != nil {
			return err
		}
		go func() { ended <- w.Run(ctx) }()
	}
	say("begun")
	for range size {
		if err := <-ended; err != nil {
			fmt.Println("logged", err)
		}
	}
	for _, text := range []string{"the lease was lost", "did not renew its lease", "was taken away", "leaving failed", "handing blocks over failed"} {
		if n := log.count(text); n > 0 {
			fmt.Printf("logged %d times: %s\n", n, strings.TrimSpace(log.first(text)))
		}
	}
	say("ended")
	return nil
}

// TestQueueCrowd prints what many idle workers of one queue cost the server, and how long they take
// to stop all at once. They run in ten processes with ten connections each. It fails if one of them
// lost its lease, or left a block to nobody. Target: 5 s.
func TestQueueCrowd(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		t.Setenv(crowdVariable, fmt.Sprint(*crowdSize/crowdProcesses, *crowdBlocks))
		began, crowd := time.Now(), make([]*child, crowdProcesses)
		for i := range crowd {
			crowd[i] = start(t, "crowd", b.URL)
		}
		for _, c := range crowd {
			c.until(t, "begun")
		}
		for b.leased(t) < int64(min(*crowdSize, *crowdBlocks)) && time.Since(began) < time.Minute {
			pause(t, 100*time.Millisecond)
		}
		ready := time.Since(began)
		pause(t, 20*time.Second) // until they are idle
		before, commits, from := b.crowdCPU(t, crowd), b.commits(t), time.Now()
		pause(t, *span)
		took := time.Since(from)
		u := b.crowdCPU(t, crowd).since(before, 1)
		sent := perSecond(b.commits(t)-commits, took)
		stopped := stopCrowd(t, crowd)
		t.Logf("%-8s %5d workers, %d blocks: %.1f transactions/s; CPU of clients and server %.1f + %.1f ms/s; began in %.1f s, ended in %.1f s",
			b.Dialect.Name, *crowdSize, *crowdBlocks, sent, 1e3*u.client.Seconds()/took.Seconds(), 1e3*u.server.Seconds()/took.Seconds(),
			ready.Seconds(), stopped.Seconds())
		if n := b.leased(t); n != 0 {
			t.Errorf("%d blocks are leased by nobody who runs", n)
		}
	})
}

// stopCrowd stops all processes at once, and returns how long it took until the last one's workers
// had ended.
func stopCrowd(t *testing.T, crowd []*child) time.Duration {
	t.Helper()
	from := instant.Now()
	for _, c := range crowd {
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	last := from
	for _, c := range crowd {
		last = max(last, c.until(t, "ended"))
		c.kill()
	}
	return last.Sub(from)
}

// crowdCPU is cpu with the processes of the crowd as the client.
func (b *bed) crowdCPU(t *testing.T, crowd []*child) usage {
	t.Helper()
	u := b.cpu(t)
	u.client = 0
	for _, c := range crowd {
		u.client += family(strconv.Itoa(c.cmd.Process.Pid))
	}
	return u
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
