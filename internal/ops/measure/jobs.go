package measure

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/queue"
)

func enqueueAlone(ctx context.Context, b *bed, span time.Duration) ([]Figure, error) {
	return b.enqueue(ctx, 1, span)
}

func enqueueTogether(ctx context.Context, b *bed, span time.Duration) ([]Figure, error) {
	return b.enqueue(ctx, 32, span)
}

// enqueue has callers enqueue one job after the other. A single caller's time beyond a round trip is
// attributed to the commit.
func (b *bed) enqueue(ctx context.Context, callers int, span time.Duration) ([]Figure, error) {
	from := loadNow()
	took, all, err := calls(ctx, callers, span, func(ctx context.Context, _ int) error {
		_, err := b.producer.Enqueue(ctx, b.job())
		return err
	})
	if err != nil {
		return nil, err
	}
	f := called("enqueue", "jobs", callers, took, all, from.since())
	if callers == 1 {
		b.commit = max(0, f.P50-b.read)
		f.Bound = b.boundAlone(&f, 1)
	} else {
		f.Bound = b.bound(f.Host, 1)
	}
	return []Figure{f}, nil
}

const (
	bulkSize = 1000
	bulkMost = 500_000 // jobs: enough for a fast database, without filling its disk
)

// drain enqueues in bulk for a third of the time, and then has a worker drain the queue.
func drain(ctx context.Context, b *bed, span time.Duration) ([]Figure, error) {
	jobs := slices.Repeat([]queue.Job{b.job()}, bulkSize)
	var filled atomic.Int64
	filling := loadNow()
	took, all, err := calls(ctx, 1, span/3, func(ctx context.Context, _ int) error {
		if filled.Load() >= bulkMost {
			return errEnough
		}
		_, err := b.producer.EnqueueMany(ctx, jobs)
		filled.Add(bulkSize)
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	bulk := called("enqueue in bulk", "jobs", 1, took, all, filling.since())
	bulk.Rate, bulk.P50, bulk.P99 = float64(filled.Load())/all.Seconds(), 0, 0
	bulk.Bound = b.bound(bulk.Host, 0)

	done := 0
	var mu sync.Mutex
	var first, last mark
	working, stop := context.WithCancel(ctx)
	defer stop()
	from, begin := loadNow(), now()
	worker, err := b.handler(queueName, func(context.Context, *queue.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if last = now(); done == 0 {
			first = last
		}
		if done++; done > 1 && begin.since() > 2*span/3 {
			stop()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := worker.RunOnce(working); err != nil && working.Err() == nil {
		return nil, err
	}
	f := Figure{Name: "drain", Unit: "jobs", Host: from.since()}
	if took := time.Time(last).Sub(time.Time(first)); took > 0 {
		f.Rate = float64(done) / took.Seconds()
	}
	f.Bound = b.bound(f.Host, 0)
	return []Figure{bulk, f}, nil
}

var errEnough = errors.New("enough")

// handler returns a worker of a queue with default settings.
func (b *bed) handler(queueName string, h queue.Handler) (*queue.Worker, error) {
	w, err := b.worker.Worker(queue.WorkerOptions{Queues: []string{queueName}, Grace: -1, Logger: b.quiet})
	if err == nil {
		err = w.Handle(kind, h)
	}
	return w, err
}

const (
	latencyQueue = "bench-latency"
	latencyPace  = 10 * time.Millisecond // between jobs: 100 a second
	lost         = 30 * time.Second      // latency gives up on a missing job after this time
)

// latency measures the time from the call that enqueues a job to the start of its handler, in an idle
// worker. Producer and worker have a pool each, as two processes would.
func latency(ctx context.Context, b *bed, span time.Duration) ([]Figure, error) {
	var mu sync.Mutex
	begun := map[int64]mark{}
	w, err := b.handler(latencyQueue, func(_ context.Context, d *queue.Delivery) error {
		at := now()
		mu.Lock()
		defer mu.Unlock()
		begun[d.ID] = at
		return nil
	})
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()

	from := loadNow()
	sent, err := b.trickle(ctx, span)
	host := from.since()
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(begun)
	}
	for over := now(); err == nil && count() < len(sent) && over.since() < lost; {
		err = pause(ctx, latencyPace)
	}
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	var waits []time.Duration
	for id, from := range sent {
		if at, ok := begun[id]; ok {
			waits = append(waits, time.Time(at).Sub(time.Time(from)))
		}
	}
	slices.Sort(waits)
	f := Figure{Name: "latency", Unit: "jobs", P50: quantile(waits, 0.5), P99: quantile(waits, 0.99), Host: host}
	f.Bound = b.bound(host, 1)
	if b.db.Dialect.Notify == nil {
		f.Bound = "polling; doorbells shorten it"
	}
	return []Figure{f}, nil
}

// trickle enqueues jobs one after the other and returns when each was sent. It skips the first tenth, in
// which connections are made and the worker leases its blocks.
func (b *bed) trickle(ctx context.Context, span time.Duration) (sent map[int64]mark, err error) {
	sent = map[int64]mark{}
	for begin := now(); len(sent) == 0 || begin.since() < span; {
		at := now()
		e, err := b.producer.Enqueue(ctx, queue.Job{Queue: latencyQueue, Kind: kind, Payload: payload})
		if err != nil {
			return nil, err
		}
		if begin.since() > span/10 {
			sent[e.ID] = at
		}
		if err := pause(ctx, latencyPace-at.since()); err != nil {
			return nil, err
		}
	}
	return sent, nil
}
