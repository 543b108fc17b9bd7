package httpapi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// roomPatience is how long a request waits for others to finish.
const roomPatience = 10 * time.Second

// errNoRoom means that others use the memory.
var errNoRoom = errors.New("httpapi: other requests use all the memory")

// A pool limits the memory of requests that are under way.
//
// What all share must not be held by somebody who is slow on purpose. So memory is taken as bytes arrive, and what a sender has
// declared counts towards the share of its account only: whoever sends slowly holds up requests of its own.
//
// Requests wait for their account's share, and for room, in order, and before they have anything. Later a request may have to wait
// for more while it holds some; others might do so, too, and wait for each other. So only one request waits like that, before all
// others. A second one is refused, which frees what it has. It is safe for concurrent use.
type pool struct {
	share    int64 // of an account, in bytes
	patience time.Duration

	mu       sync.Mutex
	free     int64
	declared map[string]int64 // by account
	line     []*entry         // requests that wait for their account's share, in order
	grows    []*entry         // requests that wait for room, in order; one of them may have some already
	crowded  bool             // somebody was told that nothing is free

	freed func() // called when there is room for those again; may be nil
}

// An entry is a request that waits.
type entry struct {
	account string
	bytes   int64
	holds   bool // it has some room, and needs more
	looks   bool // it takes none yet, but should not begin before there is enough
	ready   chan struct{}
}

// newPool returns a pool, of which an account may have a quarter.
func newPool(size int64) *pool {
	return &pool{share: size / 4, patience: roomPatience, free: size, declared: map[string]int64{}}
}

// A room is the memory of a request. It has one user at a time.
type room struct {
	in       *pool
	account  string
	declared int64
	bytes    int64 // taken so far
}

// enter waits until an account may have so many bytes more, and until there are as many, and returns a room without any yet.
func (p *pool) enter(ctx context.Context, account string, bytes int64) (*room, error) {
	if !p.declare(ctx, account, bytes) {
		return nil, errNoRoom
	}
	r := &room{in: p, account: account, declared: bytes}
	p.mu.Lock()
	if len(p.grows) == 0 && bytes <= p.free {
		p.mu.Unlock()
		return r, nil
	}
	e := &entry{bytes: bytes, looks: true, ready: make(chan struct{})}
	p.grows = append(p.grows, e)
	p.mu.Unlock()
	if !p.wait(ctx, e) && p.dropped(e) {
		r.leave()
		return nil, errNoRoom
	}
	return r, nil
}

// declare waits until an account may have so many bytes more, and counts them. It returns false if that took too long.
func (p *pool) declare(ctx context.Context, account string, bytes int64) bool {
	p.mu.Lock()
	if len(p.line) == 0 && p.declared[account]+bytes <= p.share {
		p.declared[account] += bytes
		p.mu.Unlock()
		return true
	}
	e := &entry{account: account, bytes: bytes, ready: make(chan struct{})}
	p.line = append(p.line, e)
	p.admit(account)
	p.mu.Unlock()
	if p.wait(ctx, e) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.line, e)
	if at < 0 { // at this moment it was admitted
		return true
	}
	p.line = slices.Delete(p.line, at, at+1)
	p.admit(account) // a smaller one may be behind it
	return false
}

// wait waits until an entry is ready, and returns whether it is.
func (p *pool) wait(ctx context.Context, e *entry) bool {
	select {
	case <-e.ready:
		return true
	default:
	}
	timer := time.NewTimer(p.patience)
	defer timer.Stop()
	select {
	case <-e.ready:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// admit lets requests of an account begin, in order. mu is held.
func (p *pool) admit(account string) {
	full := false
	p.line = slices.DeleteFunc(p.line, func(e *entry) bool {
		if e.account != account || full {
			return false
		}
		if full = p.declared[account]+e.bytes > p.share; !full {
			p.declared[account] += e.bytes
			close(e.ready)
		}
		return !full
	})
}

// grow takes bytes, and waits for them.
func (r *room) grow(ctx context.Context, bytes int64) error {
	p := r.in
	p.mu.Lock()
	if bytes == 0 || len(p.grows) == 0 && bytes <= p.free {
		p.free -= bytes
		r.bytes += bytes
		p.mu.Unlock()
		return nil
	}
	e := &entry{bytes: bytes, holds: r.bytes > 0, ready: make(chan struct{})}
	switch {
	case !e.holds:
		p.grows = append(p.grows, e)
	case len(p.grows) > 0 && p.grows[0].holds:
		p.mu.Unlock()
		return errNoRoom
	default:
		p.grows = slices.Insert(p.grows, 0, e)
		p.grant()
	}
	p.mu.Unlock()
	if !p.wait(ctx, e) && p.dropped(e) {
		return errNoRoom
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.bytes += bytes
	return nil
}

// dropped removes an entry that waits for room. It returns false if the entry has got its room at this moment.
func (p *pool) dropped(e *entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.grows, e)
	if at < 0 {
		return false
	}
	p.grows = slices.Delete(p.grows, at, at+1)
	p.grant() // a smaller one may be behind it
	return true
}

// grant gives what is free to those that wait for it, in order. mu is held.
func (p *pool) grant() {
	for len(p.grows) > 0 && p.grows[0].bytes <= p.free {
		e := p.grows[0]
		p.grows = slices.Delete(p.grows, 0, 1)
		if !e.looks {
			p.free -= e.bytes
		}
		close(e.ready)
	}
}

// Free reports whether there is anything left, for the account, too.
func (r *room) Free() bool {
	p := r.in
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.free > 0 && p.declared[r.account] < p.share
	p.crowded = p.crowded || !free
	return free
}

// Take takes bytes that are there already, even if they are not free.
func (r *room) Take(bytes int) {
	p := r.in
	p.mu.Lock()
	defer p.mu.Unlock()
	r.declared += int64(bytes)
	r.bytes += int64(bytes)
	p.declared[r.account] += int64(bytes)
	p.free -= int64(bytes)
}

// shrink gives back what was declared or taken beyond so many bytes.
func (r *room) shrink(bytes int64) {
	p := r.in
	p.mu.Lock()
	if extra := r.declared - bytes; extra > 0 {
		r.declared = bytes
		if p.declared[r.account] -= extra; p.declared[r.account] == 0 {
			delete(p.declared, r.account)
		}
		p.admit(r.account)
	}
	if extra := r.bytes - bytes; extra > 0 {
		r.bytes = bytes
		p.free += extra
	}
	p.grant()
	tell := p.crowded && p.freed != nil
	p.crowded = p.crowded && !tell
	p.mu.Unlock()
	if tell {
		p.freed()
	}
}

// leave gives everything back. A nil room has nothing.
func (r *room) leave() {
	if r != nil {
		r.shrink(0)
	}
}
