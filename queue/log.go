package queue

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dbcron/dbcron/internal/barrier"
)

// The handler of log lines is the program's: it may call the worker, or enqueue a job. So it is never
// called by a goroutine that holds the worker's mutex: such lines wait until the mutex is released.

// A quietMutex is a mutex with a log: what is logged while it is held is handed to the program's handler
// when it is released.
type quietMutex struct {
	sync.Mutex
	some atomic.Bool // spares Unlock the other mutex

	adding sync.Mutex
	lines  []line
}

// A line waits for its handler.
type line struct {
	h *lateHandler
	r slog.Record
}

// Unlock releases the mutex, and hands out the lines that have come meanwhile.
func (m *quietMutex) Unlock() {
	m.Mutex.Unlock()
	if m.some.Load() {
		m.tell()
	}
}

// add adds a line. Whoever holds the mutex now hands it out, or this goroutine does.
func (m *quietMutex) add(l line) {
	m.adding.Lock()
	m.lines = append(m.lines, l)
	m.some.Store(true)
	m.adding.Unlock()
	if m.TryLock() {
		m.Unlock()
	}
}

func (m *quietMutex) tell() {
	m.adding.Lock()
	lines := m.lines
	m.lines = nil
	m.some.Store(false)
	m.adding.Unlock()
	for _, l := range lines {
		l.h.tell(l.r)
	}
}

// logger returns a logger that may be used with and without the mutex.
func (m *quietMutex) logger(to *slog.Logger) (*slog.Logger, *lateHandler) {
	h := &lateHandler{mu: m, to: barrier.Logger(to).Handler(), levels: &atomic.Pointer[map[slog.Level]bool]{}}
	h.levels.Store(&map[slog.Level]bool{})
	return slog.New(h), h
}

// A lateHandler is a handler of log lines that calls the program's when the mutex is not held.
type lateHandler struct {
	mu     *quietMutex
	to     slog.Handler
	attrs  []slog.Attr
	levels *atomic.Pointer[map[slog.Level]bool] // which ones are enabled, as far as the program's handler was asked
}

// Enabled is true unless the program's handler has said otherwise.
func (h *lateHandler) Enabled(_ context.Context, level slog.Level) bool {
	is, known := (*h.levels.Load())[level]
	return is || !known
}

// Handle hands the line out now or soon.
func (h *lateHandler) Handle(_ context.Context, r slog.Record) error {
	h.mu.add(line{h, r.Clone()})
	return nil
}

// WithAttrs keeps the attributes, since the mutex may be held.
func (h *lateHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	derived := *h
	derived.attrs = slices.Concat(h.attrs, attrs)
	return &derived
}

// WithGroup is not used: the names of this package's attributes are in no group.
func (h *lateHandler) WithGroup(string) slog.Handler { return h }

// tell hands a line to the program's handler, and learns whether it wants such lines.
func (h *lateHandler) tell(r slog.Record) {
	ctx := context.Background()
	is := h.to.Enabled(ctx, r.Level)
	h.learn(r.Level, is)
	if !is {
		return
	}
	if len(h.attrs) > 0 {
		whole := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
		whole.AddAttrs(h.attrs...)
		r.Attrs(func(a slog.Attr) bool {
			whole.AddAttrs(a)
			return true
		})
		r = whole
	}
	_ = h.to.Handle(ctx, r) // package slog ignores it, too
}

func (h *lateHandler) learn(level slog.Level, is bool) {
	now := h.levels.Load()
	if was, known := (*now)[level]; known && was == is {
		return
	}
	next := maps.Clone(*now)
	next[level] = is
	h.levels.CompareAndSwap(now, &next)
}

// ask learns anew which levels are enabled. The mutex is not held.
func (h *lateHandler) ask() {
	for level := range *h.levels.Load() {
		h.learn(level, h.to.Enabled(context.Background(), level))
	}
}
