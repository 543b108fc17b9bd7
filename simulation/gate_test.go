package simulation

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A gate is where everything that reaches the database, or comes from it, waits for its turn: each round
// trip of each process, each notification, and each fault. While anything runs, nobody gets a turn. When
// all goroutines of the bubble wait, the newcomers are put into an order that does not depend on which
// goroutine came first, the seed decides how long each is under way, and the first one that has arrived is
// let through, alone.
//
// So a seed fixes the order in which round trips happen, and what breaks. It does not fix the order in
// which goroutines of a process run between two round trips, and what Go draws by itself: the order of a
// map, and of cases of a select that are ready at once. The overlay of Go's runtime does: see overlay.
type gate struct {
	w    *World
	dice dice

	mu      sync.Mutex
	waiting []*turn
	seq     int
	writer  *conn // has a transaction that writes
	closed  bool

	arrived chan struct{} // something has changed
	ended   chan struct{}
}

// A turn is something that waits at the gate.
type turn struct {
	p     *Process // nil: a fault
	c     *conn
	op    string // a statement, or connect, begin, commit, rollback, ping, listen, notify
	args  []driver.NamedValue
	write bool   // it needs the right to write
	act   func() // of a fault: what to do
	rows  int    // that were answered

	seq  int
	due  time.Time // when it arrives at the database; zero: it has just come
	free chan order
}

// An order says what happens to a turn that is let through.
type order struct {
	before error         // the round trip fails, and the database does nothing
	after  error         // the database does its work, and the answer is this
	back   time.Duration // how long the answer is under way
	lose   time.Duration // how long the process reaches nobody after the answer
}

// busyWait is how long a writer waits for another one before SQLite refuses it: see dialect/sqlite.
const busyWait = time.Second

func newGate(w *World) *gate {
	return &gate{w: w, dice: newDice(w.seed, "gate"), arrived: make(chan struct{}, 1), ended: make(chan struct{})}
}

// pass waits for a turn, until ctx ends or its process dies.
func (g *gate) pass(ctx context.Context, t *turn) (order, error) {
	t.free = make(chan order, 1)
	g.mu.Lock()
	g.waiting = append(g.waiting, t)
	g.mu.Unlock()
	g.look()
	select {
	case o := <-t.free:
		return o, nil
	case <-ctx.Done():
		g.leave(t)
		return order{}, fmt.Errorf("%w: %w", sqlconn.ErrCut, ctx.Err())
	}
}

// do has a fault happen, in its turn.
func (g *gate) do(act func()) {
	t := &turn{act: act, free: make(chan order, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, t)
	g.mu.Unlock()
	g.look()
	<-t.free
}

func (g *gate) leave(t *turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(o *turn) bool { return o == t })
	g.look()
}

// look makes the gate look again at who may pass.
func (g *gate) look() {
	select {
	case g.arrived <- struct{}{}:
	default:
	}
}

// collect lets one through after the other, until close.
func (g *gate) collect() {
	defer close(g.ended)
	for {
		synctest.Wait()
		t, at := g.next()
		if t != nil {
			g.release(t)
			continue
		}
		g.mu.Lock()
		closed := g.closed
		g.mu.Unlock()
		if closed {
			return
		}
		if at.IsZero() {
			<-g.arrived
			continue
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-g.arrived:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.look()
	<-g.ended
}

// next takes the turn that is next, if one is due, or else returns when to look again; zero: when
// something comes.
func (g *gate) next() (next *turn, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit()
	now := time.Now() //nolint:forbidigo // virtual
	for _, t := range g.waiting {
		due := t.due
		if t.p != nil {
			if t.p.holds() {
				continue
			}
			if t.write && g.writer != nil && g.writer != t.c {
				due = due.Add(busyWait) // SQLite will refuse it, unless the other one ends before
			}
		}
		if at.IsZero() || due.Before(at) {
			at, next = due, t
		}
	}
	if next == nil || at.After(now) {
		return nil, at
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(o *turn) bool { return o == next })
	return next, at
}

// admit decides when the newcomers arrive at the database.
func (g *gate) admit() {
	var fresh []*turn
	for _, t := range g.waiting {
		if t.due.IsZero() {
			fresh = append(fresh, t)
		}
	}
	slices.SortStableFunc(fresh, func(a, b *turn) int { return cmp.Compare(a.rank(), b.rank()) })
	now := time.Now() //nolint:forbidigo // virtual
	for _, t := range fresh {
		g.seq++
		t.seq, t.due = g.seq, now
		if t.p != nil && t.op != "rollback" {
			t.due = now.Add(g.w.way(t.p, g.dice))
		}
	}
	slices.SortStableFunc(g.waiting, func(a, b *turn) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq)) })
}

// rank puts turns that came at the same instant into an order.
func (t *turn) rank() string {
	if t.p == nil {
		return "" // faults first
	}
	return fmt.Sprint(t.p.Name, " ", t.p.Life, " ", t.op, " ", valuesOf(t.args))
}

// release lets a turn through.
func (g *gate) release(t *turn) {
	if t.act != nil {
		t.act()
		t.free <- order{}
		return
	}
	t.free <- g.w.fate(t, g.dice)
}

// writes reports whether a process has the right to write.
func (g *gate) writes(p *Process) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writer != nil && g.writer.p == p
}

// holdsWrite notes which connection has the right to write, or with nil that nobody has it.
func (g *gate) holdsWrite(c *conn, has bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case has:
		g.writer = c
	case g.writer == c:
		g.writer = nil
	}
	g.look()
}
