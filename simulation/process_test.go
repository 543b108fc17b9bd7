package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Program is what a process runs, from its start to its end. It returns when p.Context ends, or before.
// What it does after its process was killed reaches nobody; it still has to return.
type Program func(p *Process) error

// A Process is one life of a process: a host that is killed or restarted begins another one. Everything
// that a program does to others goes through its Process: connections, waiting, and what it says it did.
type Process struct {
	Name string
	Life int
	Dice dice         // of this life
	Log  *slog.Logger // into the history

	w      *World
	clock  *instant.Host // the wall clock of its host
	began  time.Time
	number int // of all lives
	ctx    context.Context
	stop   context.CancelFunc
	done   chan struct{} // closed when its program has returned

	mu      sync.Mutex
	conns   map[*conn]bool
	dead    bool
	gone    chan struct{} // closed when it is dead
	still   bool          // it was stopped, as by SIGSTOP
	lost    bool          // its requests arrive nowhere
	mute    bool          // answers to it arrive nowhere
	changed chan struct{} // closed, and replaced, when one of these changes
	slow    int           // how many times longer its round trips take
	fragile int           // one of so many of its round trips is cut off; 0: none
	tardy   int           // one of so many answers to what it writes comes after seconds; 0: none
	away    time.Duration // for how long something was the matter with it, in all
	struck  time.Time     // when something last happened to it
	left    bool          // its program has returned before the world's end
	stored  time.Time     // when the server has last stored a job that it enqueued by itself
	rang    time.Time     // when it has last asked the server to notify workers
}

// Context ends when the process is to stop.
func (p *Process) Context() context.Context { return p.ctx }

// World returns the process's world.
func (p *Process) World() *World { return p.w }

func (p *Process) who() string { return fmt.Sprintf("%s/%d", p.Name, p.Life) }

// maxTries is for how many seconds a process connects in vain: longer than any fault.
const maxTries = 600

// Open connects to the database, with a pool of at most so many connections. It tries again until it
// succeeds or the process is to stop. The connections are closed when the program returns.
func (p *Process) Open(most int) (*dialect.DB, error) {
	for tries := 1; ; tries++ {
		conns := pool(p, most)
		db, err := sqlrun.Wrap(p.ctx, []*sqlrun.Dialect{p.w.dialect}, conns, sqlrun.Options{})
		if err == nil {
			context.AfterFunc(contextOf(p.done), func() { _ = conns.Close() })
			return db, nil
		}
		_ = conns.Close()
		if tries == maxTries {
			return nil, fmt.Errorf("connect, %d times: %w", tries, err)
		}
		if err := p.Sleep(p.ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// contextOf returns a context that ends when a channel is closed.
func contextOf(done <-chan struct{}) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-done
		cancel()
	}()
	return ctx
}

// Sleep waits. It returns early, with an error, when ctx ends or the process dies. While the process stands
// still it does not return.
func (p *Process) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-p.gone:
		return sqlconn.ErrCut
	}
	if err := p.awake(context.Background(), nil); err != nil {
		return err
	}
	return ctx.Err()
}

// awake waits while the process stands still. It returns an error if the process is dead, if ctx ends or
// if cut is closed.
func (p *Process) awake(ctx context.Context, cut <-chan struct{}) error {
	for {
		p.mu.Lock()
		dead, still, changed := p.dead, p.still, p.changed
		p.mu.Unlock()
		if dead {
			return sqlconn.ErrCut
		}
		if !still {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(sqlconn.ErrCut, ctx.Err())
		case <-cut:
			return sqlconn.ErrCut
		}
	}
}

// Act runs f, which records what the process has done, unless the process is dead: then nothing was done.
func (p *Process) Act(f func()) {
	if p.isDead() {
		return
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	f()
}

// Note writes a line into the history.
func (p *Process) Note(format string, args ...any) {
	if !p.isDead() {
		p.w.history.add(event{who: p.who(), what: fmt.Sprintf(format, args...)})
	}
}

func (p *Process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// runs reports whether its goroutines do: it is not stopped and not dead.
func (p *Process) runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead && !p.still
}

// hasEnded reports whether it was killed, or its program has returned, before the world's end.
func (p *Process) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead || p.left
}

// holds reports whether its requests are not on their way. Those of the dead are let through, to fail.
func (p *Process) holds() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead && (p.still || p.lost)
}

// strike notes that something happens to the process.
func (p *Process) strike() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.struck = time.Now() //nolint:forbidigo // virtual
}

func (p *Process) wasAway() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away
}

// sound reports whether nothing has happened to the process since a moment, nor to the server, nor to a
// process that may have kept others from writing. The world's mutex is held.
func (p *Process) sound(since time.Time) bool {
	if !p.healthy() || p.w.jams > 0 || !p.w.jammed.Before(since) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck.Before(since)
}

func (p *Process) isMute() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mute
}

func (p *Process) slowness() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

// healthy reports whether nothing keeps it from working.
func (p *Process) healthy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead && !p.still && !p.lost && !p.mute && p.slow <= 1 && p.ctx.Err() == nil
}

func (p *Process) keep(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

func (p *Process) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// change changes the process's state, and tells those who wait for that.
func (p *Process) change(f func()) {
	p.mu.Lock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.w.gate.look()
}

// hangUp cuts all connections.
func (p *Process) hangUp() {
	p.mu.Lock()
	var all []*conn
	for c := range p.conns {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.hangUp()
	}
}

// kill ends the process at once: nothing of it acts any more.
func (p *Process) kill() {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	p.dead = true
	close(p.gone)
	p.mu.Unlock()
	p.change(func() {})
	p.w.gate.drop(p)
	p.hangUp()
	p.stop()
}

// drop fails everything of a process that waits at the gate.
func (g *gate) drop(p *Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var rest []*turn
	for _, t := range g.waiting {
		if t.p == p {
			t.free <- order{before: sqlconn.ErrCut}
		} else {
			rest = append(rest, t)
		}
	}
	g.waiting = rest
}
