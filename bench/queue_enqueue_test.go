package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/queue"
)

// bulk is the number of jobs per call in TestQueueBulk.
const bulk = 1000

// TestQueueBulk prints how many jobs a second goroutines enqueue, 1000 per call, with package queue
// and with the least SQL for it.
func TestQueueBulk(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		rawQueue(t, b)
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprint(workers), func(t *testing.T) {
				report(t, b, fmt.Sprintf("%d goroutines, %d jobs a call", workers, bulk), contest(t, b, workers, bulk, bulkWays(t, b, workers)))
			})
		}
	})
}

func bulkWays(t *testing.T, b *bed, workers int) []contestant {
	t.Helper()
	p := newOurs(t, b, "EnqueueMany", queue.WorkerOptions{})
	ways := []contestant{contestantOf(p, func(ctx context.Context, n int) error { return p.many(ctx, n, bulk) })}
	if *compare {
		links := connectMany(t, b, workers)
		if b.Dialect.Name == "postgres" {
			ways = append(ways, rawContestant(b, "raw COPY", func(ctx context.Context, n int) error {
				return with(links, func(l *link) error { return l.copyIn(ctx, n, bulk) })
			}))
		}
		ways = append(ways, rawContestant(b, "raw INSERT of many rows", func(ctx context.Context, n int) error {
			return with(links, func(l *link) error { return l.insert(ctx, sequence(n, bulk)...) })
		}))
	}
	return ways
}

func sequence(first, n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = first + i
	}
	return numbers
}

func rawContestant(b *bed, name string, do func(ctx context.Context, n int) error) contestant {
	return contestant{
		name, do,
		func(t *testing.T) int64 { t.Helper(); return rawRows(t, b, "raw_job") },
		func(t *testing.T) { t.Helper(); b.truncate(t, "raw_job") },
	}
}

// TestQueueEnqueue prints how many jobs a second goroutines enqueue, one per call. Each call returns
// when its job is durable.
func TestQueueEnqueue(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		rawQueue(t, b)
		for _, workers := range []int{1, 8, 32, 256} {
			t.Run(fmt.Sprint(workers), func(t *testing.T) {
				report(t, b, fmt.Sprintf("%3d goroutines", workers), contest(t, b, workers, 1, singleWays(t, b, workers)))
			})
		}
	})
}

func singleWays(t *testing.T, b *bed, workers int) []contestant {
	t.Helper()
	p := newOurs(t, b, "Enqueue", queue.WorkerOptions{})
	ways := []contestant{singles(p)}
	if workers == 1 {
		ways = append(ways, contestant{"Enqueue, context.Background", func(_ context.Context, n int) error {
			_, err := p.one(context.Background(), n)
			return err
		}, p.left, p.wipe})
	}
	if *compare {
		waiting := coalesce(t, b, writersOf(b))
		ways = append(ways, rawContestant(b, "raw, coalesced", func(_ context.Context, n int) error {
			r := &request{n, make(chan error, 1)}
			waiting <- r
			return <-r.done
		}))
		links := connectMany(t, b, min(workers, 20))
		ways = append(ways, rawContestant(b, "raw, one row a statement", func(ctx context.Context, n int) error {
			return with(links, func(l *link) error { return l.insertOne(ctx, n) })
		}))
	}
	return ways
}

func singles(p peer) contestant {
	return contestantOf(p, func(ctx context.Context, n int) error {
		_, err := p.one(ctx, n)
		return err
	})
}

// writersOf is a coalescer's number of connections: two, so that one sends while the other waits
// for the disk, except where there is one writer at a time.
func writersOf(b *bed) int {
	if b.Dialect.Name == "sqlite" {
		return 1
	}
	return 2
}

// A coalescer writes the jobs of many callers with few statements.
type coalescer struct {
	link    *link
	waiting chan *request
}

type request struct {
	n    int
	done chan error
}

// coalesce starts a writer per link. They run until the test ends.
func coalesce(t *testing.T, b *bed, links int) chan<- *request {
	t.Helper()
	waiting := make(chan *request, 10_000)
	var group sync.WaitGroup
	for range links {
		c := &coalescer{connect(t, b), waiting}
		group.Go(func() { c.run(context.WithoutCancel(t.Context())) })
	}
	t.Cleanup(func() { close(waiting); group.Wait() })
	return waiting
}

func (c *coalescer) run(ctx context.Context) {
	for first := range c.waiting {
		part := []*request{first}
		for more := true; more && len(part) < 1000; {
			select {
			case next, ok := <-c.waiting:
				if more = ok; ok {
					part = append(part, next)
				}
			default:
				more = false
			}
		}
		numbers := make([]int, len(part))
		for i, r := range part {
			numbers[i] = r.n
		}
		err := again(ctx, c.link.d, func() error { return c.link.insert(ctx, numbers...) })
		for _, r := range part {
			r.done <- err
		}
	}
}
