package queue

import (
	"context"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// A gatherer has one statement ask what several goroutines want to know. Whoever comes while one is
// under way waits for the next, so that an answer is never older than its question.
type gatherer[K comparable, V any] struct {
	ask func(ctx context.Context, keys []K) (V, error)

	mu   sync.Mutex
	next *question[K, V]
	turn chan struct{} // has who asks
}

// A question is put for several at once.
type question[K comparable, V any] struct {
	keys   []K
	wanted map[K]bool
	ended  chan struct{}
	answer V
	err    error
	cut    bool // who asked was stopped
}

func newGatherer[K comparable, V any](ask func(ctx context.Context, keys []K) (V, error)) *gatherer[K, V] {
	return &gatherer[K, V]{ask: ask, turn: make(chan struct{}, 1)}
}

// get returns an answer to a question about keys, and perhaps others, that was asked after the call.
// The context of one of those who wait is that of the question; if it ends, another one asks.
func (g *gatherer[K, V]) get(ctx context.Context, keys ...K) (V, error) {
	for {
		x, leads := g.join(keys)
		if leads {
			g.lead(ctx, x)
		}
		select {
		case <-x.ended:
			if x.cut && ctx.Err() == nil {
				continue
			}
			return x.answer, x.err
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
}

// join adds keys to the next question, and tells whether the caller is to put it.
func (g *gatherer[K, V]) join(keys []K) (x *question[K, V], leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if leads = g.next == nil; leads {
		g.next = &question[K, V]{wanted: map[K]bool{}, ended: make(chan struct{})}
	}
	x = g.next
	for _, key := range keys {
		if !x.wanted[key] {
			x.wanted[key] = true
			x.keys = append(x.keys, key)
		}
	}
	return x, leads
}

// lead puts a question when the one before it is answered.
func (g *gatherer[K, V]) lead(ctx context.Context, x *question[K, V]) {
	defer close(x.ended)
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
	}
	g.mu.Lock()
	g.next = nil
	g.mu.Unlock()
	if x.err = ctx.Err(); x.err == nil {
		x.answer, x.err = g.ask(ctx, x.keys)
	}
	x.cut = ctx.Err() != nil
}

// inStep shortens a wait a little, so that the goroutines of a process that wait for about as long wake
// at the same time, and ask together.
func inStep(wait time.Duration) time.Duration {
	const step = 250 * time.Millisecond
	if wait < step {
		return wait
	}
	if over := instant.Now().Add(wait).Sub(0) % step; wait-over >= step/5 {
		wait -= over
	}
	return wait
}
