package peers

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// contenders is the number of processes that want locks. Each has its own client.
const contenders = 16

// A lockSystem is a way to lock.
type lockSystem interface {
	system
	// turn takes the lock as contender i, calls held while holding it, and releases it.
	turn(ctx context.Context, i int, name string, held func()) error
}

// TestLocks measures two things in each round and for each way: how many uncontended locks are taken
// and released a second, by one contender and by 16 at a time, and how often one lock passes from
// one of 16 contenders to another.
func TestLocks(t *testing.T) {
	var all []lockSystem
	for _, open := range []func(*testing.T) []lockSystem{newDbcronLocks, newRedsyncLocks, newEtcdLocks} {
		for _, l := range open(t) {
			if *only == "" || *only == l.String() {
				all = append(all, l)
			}
		}
	}
	r := newReport("Pairs, 1", "Pairs, 16", "Hand-offs, 16")
	for range *rounds {
		for _, l := range all {
			pairs := func(n int) float64 {
				_, grants := contend(t, l, n, func(i int) string { return "own-" + strconv.Itoa(i) })
				return grants
			}
			r.note(l, "Pairs, 1", pairs(1))
			r.note(l, "Pairs, 16", pairs(contenders))
			handoffs, _ := contend(t, l, contenders, func(int) string { return "shared" })
			r.note(l, "Hand-offs, 16", handoffs)
		}
	}
	r.print(t)
}

// contend has n contenders take and release locks for the span. It returns the grants a second, and
// how many of them went to another contender than the grant before.
func contend(t *testing.T, l lockSystem, n int, name func(i int) string) (handoffs, grants float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), *span)
	defer cancel()
	var group sync.WaitGroup
	var granted, passed, failed, last atomic.Int64
	begun := time.Now()
	for i := range n {
		group.Go(func() {
			for ctx.Err() == nil {
				err := l.turn(ctx, i, name(i), func() {
					granted.Add(1)
					if last.Swap(int64(i+1)) != int64(i+1) {
						passed.Add(1)
					}
				})
				if err != nil && ctx.Err() == nil {
					t.Logf("%v: %v", l, err)
					failed.Add(1)
				}
			}
		})
	}
	group.Wait()
	took := time.Since(begun).Seconds()
	if failed.Load() > 10 { // etcd gives up on a request when the disk is slow
		t.Errorf("%v: %d errors", l, failed.Load())
	}
	return float64(passed.Load()) / took, float64(granted.Load()) / took
}

// etcdLocks is etcd's own recipe for a mutex, on one server that syncs each write.
type etcdLocks struct {
	sessions [contenders]*concurrency.Session
}

func newEtcdLocks(t *testing.T) []lockSystem {
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Log("left out: etcd is not installed")
		return nil
	}
	client, peer := "http://127.0.0.1:"+dbtest.FreePort(t), "http://127.0.0.1:"+dbtest.FreePort(t)
	start(t, "etcd", "--data-dir", t.TempDir(), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	l := &etcdLocks{}
	for i := range l.sessions {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{client}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		eventually(t, "etcd answers", func() (err error) {
			l.sessions[i], err = concurrency.NewSession(c, concurrency.WithTTL(30))
			return err
		})
	}
	return []lockSystem{l}
}

func (*etcdLocks) String() string { return "etcd" }
func (*etcdLocks) durable() bool  { return true }

func (l *etcdLocks) turn(ctx context.Context, i int, name string, held func()) error {
	m := concurrency.NewMutex(l.sessions[i], "/"+name)
	if err := m.Lock(ctx); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	held()
	return m.Unlock(context.WithoutCancel(ctx))
}
