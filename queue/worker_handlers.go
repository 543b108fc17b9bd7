package queue

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/share"
)

// Use adds middleware around all handlers that are set after the call, the first outermost.
func (w *Worker) Use(m ...Middleware) { w.middleware = append(w.middleware, m...) }

// Handle sets the handler of a kind. It returns an error if the kind has a handler already, or if
// the worker is running.
func (w *Worker) Handle(kind string, h Handler) error { return w.HandleWith(kind, RetryPolicy{}, h) }

// HandleWith is Handle with a retry policy for the kind.
func (w *Worker) HandleWith(kind string, p RetryPolicy, h Handler) error {
	one, err := w.wrapped(h)
	if err != nil {
		return err
	}
	return w.handle(kind, &kindHandler{one: one, retry: p})
}

// HandleOthers sets the handler of all kinds without a handler of their own. Without it the
// worker leaves such jobs alone (see [WorkerOptions.BuryUnknown]). It returns an error as Handle
// does.
func (w *Worker) HandleOthers(h Handler) error {
	one, err := w.wrapped(h)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handleOthers(&kindHandler{one: one})
}

// handleOthers sets the handler of the other kinds. mu is held.
func (w *Worker) handleOthers(h *kindHandler) error {
	switch {
	case w.started:
		return invalid("kind", "the other kinds: the worker runs already")
	case w.others != nil:
		return invalid("kind", "the other kinds have a handler already")
	}
	w.others = h
	return nil
}

func (w *Worker) handle(kind string, h *kindHandler) error {
	if err := sqlrun.CheckName(kind); err != nil {
		return invalid("kind", "%v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.started:
		return invalid("kind", "%q: the worker runs already", kind)
	case w.handlers[kind] != nil:
		return invalid("kind", "%q has a handler already", kind)
	}
	w.handlers[kind], w.kinds[kind] = h, kind
	return nil
}

// pick sets which kinds a worker handles that has handlers for some only. mu is held.
func (w *Worker) pick() {
	if w.others == nil && !w.opt.BuryUnknown && w.unasked == nil && !w.alone {
		w.choice.selective, w.choice.handled = true, share.NewKindSet(slices.Collect(maps.Keys(w.handlers)))
	}
}

// HandleBatch sets the batch handler of a kind. Middleware does not apply to it.
func (w *Worker) HandleBatch(kind string, opt BatchOptions, h BatchHandler) error {
	opt.Max = cmp.Or(opt.Max, 100)
	if opt.Max < 1 || opt.Wait < 0 {
		return invalid("batch", "a batch needs a size of 1 or more, and a wait that is not negative")
	}
	return w.handle(kind, &kindHandler{many: h, batch: opt, retry: opt.Retry})
}

// HandleOtherBatches sets the batch handler of all kinds without a handler of their own: a batch
// has jobs of any of these kinds, and of any of the worker's queues. It returns an error as
// HandleOthers does.
func (w *Worker) HandleOtherBatches(opt BatchOptions, h BatchHandler) error {
	opt.Max = cmp.Or(opt.Max, 100)
	if opt.Max < 1 || opt.Wait < 0 || opt.ByKey {
		return invalid("batch", "a batch of any kind needs a size of 1 or more, a wait that is not negative, and cannot be by key")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handleOthers(&kindHandler{many: h, batch: opt})
}
