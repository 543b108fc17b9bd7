package barrier

import (
	"context"
	"log/slog"
)

// Logger returns a logger that survives a handler of the program's that panics: the line is lost.
func Logger(log *slog.Logger) *slog.Logger {
	if _, ok := log.Handler().(*handler); ok {
		return log
	}
	return slog.New(&handler{log.Handler()})
}

// A handler calls another one inside the barrier.
type handler struct{ to slog.Handler }

// Enabled is true if it cannot be known.
func (h *handler) Enabled(ctx context.Context, level slog.Level) (is bool) {
	is = true
	_, _ = Do(func() { is = h.to.Enabled(ctx, level) })
	return is
}

// Handle returns the panic as an error, which package slog ignores.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	_, err := Call(func() error { return h.to.Handle(ctx, r) })
	return err
}

// WithAttrs returns the handler without the attributes if they cannot be added.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.derived(func() slog.Handler { return h.to.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	return h.derived(func() slog.Handler { return h.to.WithGroup(name) })
}

func (h *handler) derived(f func() slog.Handler) slog.Handler {
	to := h.to
	_, _ = Do(func() {
		if derived := f(); derived != nil {
			to = derived
		}
	})
	return &handler{to}
}

// Tell calls a function of the program's that is only told something, and logs its panic.
func Tell(log *slog.Logger, name string, f func()) {
	if stack, err := Do(f); err != nil {
		log.Error("a function of the program's has panicked", "function", name, "err", err, "stack", stack)
	}
}
