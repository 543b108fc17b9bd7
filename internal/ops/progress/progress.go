// Package progress shows on stderr how far a long task is.
package progress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
)

// Tasks shorter than quiet show no progress. After that, a terminal shows a line that is updated, and a file gets
// a line per interval.
const (
	quiet            = 2 * time.Second
	terminalInterval = 500 * time.Millisecond
	fileInterval     = 10 * time.Second
	leftTime         = 5 * time.Second // timeout of counting what is left
)

// A Task is work that may take long, with ways to measure its progress.
type Task struct {
	What  string                             // such as "retrying jobs of mail"
	Unit  string                             // what is counted, such as jobs
	Left  func(context.Context) (int, error) // counts what is left; called once
	Look  func(context.Context) (int, error) // counts what is done, if nobody calls At; may be nil
	Share func() float64                     // fraction done, from 0 to 1, if left is unknown; may be nil
}

// A Progress shows a task's progress on stderr. It replaces stderr during the task, so that its line and other
// output do not mix.
type Progress struct {
	Task
	at       *io.Writer // stderr
	to       io.Writer  // what it was
	terminal bool
	began    instant.Instant
	stop     context.CancelFunc
	ended    chan struct{}

	mu    sync.Mutex
	done  int
	total int  // 0: unknown
	shown bool // the terminal shows a line to erase before other output
}

// Begin starts showing progress on stderr, which it replaces until the caller calls End. terminal says whether that is
// one.
func Begin(ctx context.Context, stderr *io.Writer, terminal bool, t Task) *Progress {
	g := newProgress(stderr, t, terminal)
	ctx, g.stop = context.WithCancel(ctx)
	go g.run(ctx)
	return g
}

// newProgress returns a progress that shows nothing by itself.
func newProgress(stderr *io.Writer, t Task, terminal bool) *Progress {
	g := &Progress{Task: t, at: stderr, to: *stderr, terminal: terminal, began: instant.Now(), ended: make(chan struct{})}
	*stderr = g
	return g
}

func (g *Progress) run(ctx context.Context) {
	defer close(g.ended)
	interval := fileInterval
	if g.terminal {
		interval = terminalInterval
	}
	counted := false
	for range pace.Ticks(ctx, interval) {
		if took := instant.Now().Sub(g.began); took >= quiet {
			g.count(ctx, !counted)
			counted = true
			g.tell(instant.Now().Sub(g.began))
		}
	}
}

// count measures progress. It skips what cannot be learned in time.
func (g *Progress) count(ctx context.Context, first bool) {
	ctx, cancel := context.WithTimeout(ctx, leftTime)
	defer cancel()
	if g.Look != nil {
		if n, err := g.Look(ctx); err == nil {
			g.At(n)
		}
	}
	if g.Left == nil || !first {
		return
	}
	g.mu.Lock()
	before := g.done
	g.mu.Unlock()
	if n, err := g.Left(ctx); err == nil {
		g.mu.Lock()
		g.total = before + n
		g.mu.Unlock()
	}
}

// At records how much is done.
func (g *Progress) At(done int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = done
}

// tell shows the progress after some time.
func (g *Progress) tell(took time.Duration) {
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
func (g *Progress) line(took time.Duration) string {
	text := g.What + ": "
	if g.done == 0 {
		return text + "for " + took.Round(time.Second).String()
	}
	part := float64(0)
	switch {
	case g.total > 0:
		part = min(1, float64(g.done)/float64(g.total))
		text += fmt.Sprintf("%d of %d %s", g.done, max(g.done, g.total), g.Unit)
	case g.Share != nil && g.Share() > 0:
		part = min(1, g.Share())
		text += fmt.Sprintf("%d %s, %.0f %%", g.done, g.Unit, 100*part)
	default:
		text += fmt.Sprintf("%d %s", g.done, g.Unit)
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
func (g *Progress) Write(text []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown && len(bytes.TrimSpace(text)) > 0 {
		g.clear()
	}
	return g.to.Write(text)
}

func (g *Progress) clear() {
	_, _ = io.WriteString(g.to, "\r\x1b[K") // like all output on stderr
	g.shown = false
}

// End restores stderr.
func (g *Progress) End() {
	g.stop()
	<-g.ended
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown {
		g.clear()
	}
	*g.at = g.to
}
