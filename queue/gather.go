package queue

import (
	"context"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// A gatherer answers questions of several goroutines with one statement. Those who ask while a
// statement is under way wait for the next, so that an answer is never older than its question.
type gatherer[K comparable, V any] struct {
	ask func(ctx context.Context, keys []K) (V, error)

	mu     sync.Mutex
	next   *question[K, V]
	asking chan struct{} // held by whoever is asking
}

// A question is asked once for several callers.
type question[K comparable, V any] struct {
	keys   []K
	wanted map[K]bool
	ended  chan struct{}
	answer V
	err    error
	cut    bool // its asker was stopped
}

func newGatherer[K comparable, V any](ask func(ctx context.Context, keys []K) (V, error)) *gatherer[K, V] {
	return &gatherer[K, V]{ask: ask, asking: make(chan struct{}, 1)}
}

// get returns an answer to a question about keys, and perhaps others, asked after the call. The
// question runs in the context of one of the callers; if that ends, another one asks.
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

// join adds keys to the next question, and reports whether the caller has to ask it.
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

// lead asks a question once the previous one is answered.
func (g *gatherer[K, V]) lead(ctx context.Context, x *question[K, V]) {
	defer close(x.ended)
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
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

// inStep shortens a wait a little, so that goroutines of a process with similar waits wake at the
// same time and ask together.
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
