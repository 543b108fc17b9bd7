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

// Tasks shorter than quiet show no progress. After that, a terminal shows a line that is updated, and a file gets
// a line per interval.
const (
	quiet            = 2 * time.Second
	terminalInterval = 500 * time.Millisecond
	fileInterval     = 10 * time.Second
	leftTime         = 5 * time.Second // timeout of counting what is left
)

// A task is work that may take long, with ways to measure its progress.
type task struct {
	what  string                             // such as "retrying jobs of mail"
	unit  string                             // what is counted, such as jobs
	left  func(context.Context) (int, error) // counts what is left; called once
	look  func(context.Context) (int, error) // counts what is done, if nobody calls at; may be nil
	share func() float64                     // fraction done, from 0 to 1, if left is unknown; may be nil
}

// A progress shows a task's progress on stderr. It replaces stderr during the task, so that its line and other
// output do not mix.
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
	total int  // 0: unknown
	shown bool // the terminal shows a line to erase before other output
}

// begin starts showing progress; the caller must call end.
func (p *program) begin(ctx context.Context, t task) *progress {
	g := p.newProgress(t, isTerminal(p.err))
	ctx, g.stop = context.WithCancel(ctx)
	go g.run(ctx)
	return g
}

// newProgress returns a progress that shows nothing by itself.
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

// count measures progress. It skips what cannot be learned in time.
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

// at records how much is done.
func (g *progress) at(done int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = done
}

// tell shows the progress after some time.
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

// line describes the progress: how much is done of how much, how fast, and the remaining time at that pace.
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

// Write writes other output to stderr.
func (g *progress) Write(text []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown && len(bytes.TrimSpace(text)) > 0 {
		g.clear()
	}
	return g.to.Write(text)
}

func (g *progress) clear() {
	_, _ = io.WriteString(g.to, "\r\x1b[K") // like all output on stderr
	g.shown = false
}

// end restores stderr.
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
