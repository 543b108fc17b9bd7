package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// Work that ends within quiet says nothing of how far it is. After that a terminal has a line
// that changes, and a file a line each interval.
const (
	quiet            = 2 * time.Second
	terminalInterval = 500 * time.Millisecond
	fileInterval     = 10 * time.Second
	leftTime         = 5 * time.Second // for which what is left is counted at the most
)

// A task is work that may take long, and how to learn how far it is.
type task struct {
	what  string                             // such as "retrying jobs of mail"
	unit  string                             // what is counted: jobs
	left  func(context.Context) (int, error) // counts what is left to do; is asked once
	look  func(context.Context) (int, error) // counts what is done, where nobody calls at; may be nil
	share func() float64                     // which part is done, from 0 to 1, where left is not known; may be nil
}

// A progress tells on stderr how far a task is. It is stderr as long as the task goes on, so
// that its line and others do not mix.
type progress struct {
	task
	p        *program
	to       io.Writer
	terminal bool
	began    instant.Instant
	stop     context.CancelFunc
	ended    chan struct{}

	mu    sync.Mutex
	done  int
	total int  // 0: not known
	shown bool // there is a line on the terminal that has to go before another
}

// begin begins to tell how far a task is; end has to be called.
func (p *program) begin(ctx context.Context, t task) *progress {
	g := p.newProgress(t, isTerminal(p.err))
	ctx, g.stop = context.WithCancel(ctx)
	go g.run(ctx)
	return g
}

// newProgress returns one that tells nothing by itself.
func (p *program) newProgress(t task, terminal bool) *progress {
	g := &progress{task: t, p: p, to: p.err, terminal: terminal, began: instant.Now(), ended: make(chan struct{})}
	p.err = g
	return g
}

func (g *progress) run(ctx context.Context) {
	defer close(g.ended)
	interval := fileInterval
	if g.terminal {
		interval = terminalInterval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for counted := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if took := instant.Now().Sub(g.began); took >= quiet {
			g.count(ctx, !counted)
			counted = true
			g.tell(instant.Now().Sub(g.began))
		}
	}
}

// count asks how far the task is. It goes without what cannot be learned in time.
func (g *progress) count(ctx context.Context, first bool) {
	ctx, cancel := context.WithTimeout(ctx, leftTime)
	defer cancel()
	if g.look != nil {
		if n, err := g.look(ctx); err == nil {
			g.at(n)
		}
	}
	if g.left == nil || !first {
		return
	}
	g.mu.Lock()
	before := g.done
	g.mu.Unlock()
	if n, err := g.left(ctx); err == nil {
		g.mu.Lock()
		g.total = before + n
		g.mu.Unlock()
	}
}

// at says how much is done.
func (g *progress) at(done int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = done
}

// tell writes how far the task is, after so long.
func (g *progress) tell(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.terminal {
		fmt.Fprintf(g.to, "\r\x1b[Kdbcron: %s", g.line(took))
		g.shown = true
		return
	}
	fmt.Fprintf(g.to, "dbcron: %s\n", g.line(took))
}

// line says how far the task is: how much is done of how much, how fast, and how long it will
// still take at that pace.
func (g *progress) line(took time.Duration) string {
	text := g.what + ": "
	if g.done == 0 {
		return text + "for " + took.Round(time.Second).String()
	}
	part := float64(0)
	switch {
	case g.total > 0:
		part = min(1, float64(g.done)/float64(g.total))
		text += fmt.Sprintf("%d of %d %s", g.done, max(g.done, g.total), g.unit)
	case g.share != nil && g.share() > 0:
		part = min(1, g.share())
		text += fmt.Sprintf("%d %s, %.0f %%", g.done, g.unit, 100*part)
	default:
		text += fmt.Sprintf("%d %s", g.done, g.unit)
	}
	if rate := float64(g.done) / took.Seconds(); rate >= 1 {
		text += fmt.Sprintf(", %.0f a second", rate)
	}
	if part > 0 {
		text += ", " + time.Duration(float64(took)*(1-part)/part).Round(time.Second).String() + " left"
	}
	return text
}

// Write writes what is said on stderr meanwhile.
func (g *progress) Write(text []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown && len(bytes.TrimSpace(text)) > 0 {
		g.clear()
	}
	return g.to.Write(text)
}

func (g *progress) clear() {
	_, _ = io.WriteString(g.to, "\r\x1b[K") // as all that is said on stderr
	g.shown = false
}

// end ends it: stderr is what it was.
func (g *progress) end() {
	g.stop()
	<-g.ended
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown {
		g.clear()
	}
	g.p.err = g.to
}
