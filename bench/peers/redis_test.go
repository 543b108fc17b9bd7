package peers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// redisServer starts Redis with its append-only file, which it syncs at each write or once a second.
// It returns the address, or "" if Redis is not installed.
func redisServer(t *testing.T, fsync string) string {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Log("left out: redis-server is not installed")
		return ""
	}
	port := dbtest.FreePort(t)
	start(t, "redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", "",
		"--appendonly", "yes", "--appendfsync", fsync, "--logfile", "/dev/null")
	address := "127.0.0.1:" + port
	c := redis.NewClient(&redis.Options{Addr: address})
	defer c.Close()
	eventually(t, "Redis answers", func() error { return c.Ping(t.Context()).Err() })
	return address
}

// syncs are Redis's settings, with whether acknowledged data is on disk.
var syncs = []struct {
	fsync, as string
	durable   bool
}{
	{"always", "fsync at each write", true},
	{"everysec", "fsync once a second", false},
}

// asynqQueue is asynq with enough workers to keep both processors busy.
type asynqQueue struct {
	as      string
	safe    bool
	address string
	c       *asynq.Client
}

const asynqWorkers = 200

func asynqQueues(t *testing.T) (all []queueSystem) {
	for _, s := range syncs {
		address := redisServer(t, s.fsync)
		if address == "" {
			return nil
		}
		c := asynq.NewClient(asynq.RedisClientOpt{Addr: address, PoolSize: 64})
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, &asynqQueue{as: "asynq on Redis, " + s.as, safe: s.durable, address: address, c: c})
	}
	return all
}

func (q *asynqQueue) String() string { return q.as }
func (q *asynqQueue) durable() bool  { return q.safe }
func (*asynqQueue) bulk() bool       { return false }

func (q *asynqQueue) one(ctx context.Context, n int) error {
	_, err := q.c.EnqueueContext(ctx, asynq.NewTask("noop", payload(n)))
	return err
}

func (q *asynqQueue) unique(ctx context.Context, n int) error {
	_, err := q.c.EnqueueContext(ctx, asynq.NewTask("noop", payload(n)), asynq.Unique(time.Hour))
	return err
}

// many uses 16 callers: asynq has no call for several tasks.
func (q *asynqQueue) many(ctx context.Context, first, n int) error {
	var group sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		group.Go(func() {
			for at := first + i; at < first+n && errs[i] == nil; at += len(errs) {
				errs[i] = q.one(ctx, at)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (q *asynqQueue) work(t *testing.T, do func(n int)) (stop func()) {
	t.Helper()
	s := asynq.NewServer(asynq.RedisClientOpt{Addr: q.address, PoolSize: asynqWorkers}, asynq.Config{
		Concurrency: asynqWorkers, LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond,
	})
	err := s.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		do(number(t, task.Payload()))
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return s.Shutdown
}

func (q *asynqQueue) wipe(t *testing.T) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: q.address})
	defer c.Close()
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	// asynq's client caches which queues Redis knows.
	if err := c.SAdd(t.Context(), "asynq:queues", "default").Err(); err != nil {
		t.Fatal(err)
	}
}

// redsyncLocks is redsync with one Redis and a client per contender.
type redsyncLocks struct {
	as    string
	safe  bool
	syncs [contenders]*redsync.Redsync
}

func newRedsyncLocks(t *testing.T) (all []lockSystem) {
	for _, s := range syncs {
		address := redisServer(t, s.fsync)
		if address == "" {
			return nil
		}
		l := &redsyncLocks{as: "redsync on Redis, " + s.as, safe: s.durable}
		for i := range l.syncs {
			c := redis.NewClient(&redis.Options{Addr: address})
			t.Cleanup(func() { _ = c.Close() })
			l.syncs[i] = redsync.New(goredis.NewPool(c))
		}
		all = append(all, l)
	}
	return all
}

func (l *redsyncLocks) String() string { return l.as }
func (l *redsyncLocks) durable() bool  { return l.safe }

// turn polls every 5 ms: redsync does not notify waiters.
func (l *redsyncLocks) turn(ctx context.Context, i int, name string, held func()) error {
	m := l.syncs[i].NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(1_000_000),
		redsync.WithRetryDelay(5*time.Millisecond))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	held()
	if ok, err := m.UnlockContext(context.WithoutCancel(ctx)); err != nil || !ok {
		return fmt.Errorf("unlock: %v, %w", ok, err)
	}
	return nil
}
