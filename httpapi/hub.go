package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

const (
	maxFollowers = 100
	maxOfToken   = 20   // of one token
	maxRuns      = 1000 // of one look, and in the catch-up of a follower that reconnects
	lookEvery    = time.Second
	figuresEvery = 5 // in looks
	lateIDs      = 200
	backlog      = 2000 // events that a follower may lag behind
)

// errFollowers means that the daemon has too many followers.
var errFollowers = errors.New("too many listen to events at this daemon; ask another, or try again later")

// errOwnFollowers means that one token has too many followers. A client that leaks streams takes no
// places from others.
var errOwnFollowers = fmt.Errorf("%d streams of events are open at this daemon with this token, as many as may be; close some", maxOfToken)

// A hub sends events to all followers. It reads the tables for all of them together, and only while
// there are any.
type hub struct {
	db     *dialect.DB
	sample *sampler
	log    *slog.Logger

	mu        sync.Mutex
	followers map[*follower]struct{}
	stop      context.CancelFunc         // nil: no followers
	mark      int64                      // all runs up to this one have ended and were sent
	queues    map[string]wire.QueueEvent // as last sent
}

// A follower receives events.
type follower struct {
	events chan []byte
	slow   chan struct{} // closed when it was too slow
	token  string        // its token; "" while there are none
}

// noMark is the id of events that leave the client's Last-Event-ID as it was.
const noMark = -1

// event encodes an event. id is what a reconnecting client sends as Last-Event-ID.
func event(name string, id int64, data any) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		text = []byte("{}") // numbers and valid strings always encode
	}
	if id == noMark {
		return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, text)
	}
	return fmt.Appendf(nil, "event: %s\nid: %d\ndata: %s\n\n", name, id, text)
}

// join adds a follower with a token, and returns what to send it first. The first follower starts the
// hub's loop.
func (h *hub) join(ctx context.Context, token string) (l *follower, mark int64, queues []wire.QueueEvent, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.followers) >= maxFollowers {
		return nil, 0, nil, errFollowers
	}
	own := 0
	for l := range h.followers {
		if token != "" && l.token == token {
			own++
		}
	}
	if own >= maxOfToken {
		return nil, 0, nil, errOwnFollowers
	}
	if h.stop == nil {
		w := &watch{hub: h, known: map[int64]string{}}
		if err := w.begin(ctx); err != nil {
			return nil, 0, nil, err
		}
		looking, stop := context.WithCancel(context.Background())
		h.stop = stop
		go w.look(looking)
	}
	l = &follower{events: make(chan []byte, backlog), slow: make(chan struct{}), token: token}
	h.followers[l] = struct{}{}
	for _, name := range slices.Sorted(maps.Keys(h.queues)) {
		queues = append(queues, h.queues[name])
	}
	return l, h.mark, queues, nil
}

// leave removes a follower. The last one stops the loop.
func (h *hub) leave(l *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(l)
}

// drop is leave; the caller holds h.mu.
func (h *hub) drop(l *follower) {
	delete(h.followers, l)
	if len(h.followers) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// tell sends events to all followers. One that lags too far behind is dropped and must reconnect.
func (h *hub) tell(events [][]byte) {
	for l := range h.followers {
		for _, e := range events {
			select {
			case l.events <- e:
				continue
			default:
			}
			close(l.slow)
			h.drop(l)
			break
		}
	}
}

// A watch is the hub's state between looks.
type watch struct {
	hub     *hub
	known   map[int64]string // states of runs that have not ended, and of the last ones
	highest int64
	before  int64 // highest id at the last look: later commits may have smaller ids
	figures *figures
}

func isOpen(state string) bool { return state == "waiting" || state == "running" || state == "retry" }

// begin reads the initial state, from which changes are reported. The caller holds hub.mu.
func (w *watch) begin(ctx context.Context) error {
	ids, newest, err := scheduler.OpenRuns(ctx, w.hub.db, maxRuns)
	if err != nil {
		return err
	}
	runs, err := scheduler.RunsWithIDs(ctx, w.hub.db, ids)
	if err != nil {
		return err
	}
	recent, err := scheduler.RunsAfter(ctx, w.hub.db, newest-lateIDs, maxRuns)
	if err != nil {
		return err
	}
	for _, r := range append(runs, recent...) {
		w.known[r.ID] = r.State
		w.highest = max(w.highest, r.ID)
	}
	w.before = w.highest
	w.hub.mark = w.markNow()
	w.figures, err = w.hub.sample.look(ctx)
	if err == nil {
		w.hub.queues = map[string]wire.QueueEvent{}
		for i := range w.figures.queues {
			q := wire.QueueEvent{QueueFigures: newQueueFigures(&w.figures.queues[i])}
			w.hub.queues[q.Queue] = q
		}
	}
	return err
}

// markNow returns the run up to which all have ended.
func (w *watch) markNow() int64 {
	mark := w.before
	for id, state := range w.known {
		if isOpen(state) {
			mark = min(mark, id-1)
		}
	}
	return mark
}

// look reads the tables repeatedly until ctx ends.
func (w *watch) look(ctx context.Context) {
	failed, n := false, 0
	for range pace.Ticks(ctx, lookEvery) {
		n++
		err := w.once(ctx, n%figuresEvery == 0)
		if err != nil && ctx.Err() == nil && !failed {
			w.hub.log.Warn("http: those who listen to events are not told all", "err", err)
		}
		failed = err != nil
	}
}

// once reads the tables and sends what is new.
func (w *watch) once(ctx context.Context, withFigures bool) error {
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	runs, err := w.changed(bounded)
	if err != nil {
		return err
	}
	var f *figures
	if withFigures { // if that fails, runs are sent nevertheless: they would not be seen as changed again
		f, err = w.hub.sample.look(bounded)
	}
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil { // another watch may be running by now
		return err
	}
	h.mark = w.markNow()
	events := runEvents(runs, h.mark)
	if f != nil && f != w.figures {
		for _, q := range w.queueEvents(f) {
			h.queues[q.Queue] = q
			events = append(events, event("queue", noMark, q))
		}
		w.figures = f
	}
	h.tell(events)
	return err
}

// runEvents encodes runs. Only the last event has the mark: a client that received just the first ones
// reconnects with the previous mark, and misses none.
func runEvents(runs []scheduler.Run, mark int64) (events [][]byte) {
	for i := range runs {
		id := int64(noMark)
		if i == len(runs)-1 {
			id = mark
		}
		events = append(events, event("run", id, listedRun(&runs[i])))
	}
	return events
}

// changed returns the runs that are new or have changed their state.
func (w *watch) changed(ctx context.Context) ([]scheduler.Run, error) {
	from := w.highest - lateIDs
	recent, err := scheduler.RunsAfter(ctx, w.hub.db, from, maxRuns)
	if err != nil {
		return nil, err
	}
	var older []int64
	for id, state := range w.known {
		if id <= from && isOpen(state) {
			older = append(older, id)
		}
	}
	slices.Sort(older)
	var all []scheduler.Run
	for ids := range slices.Chunk(older, maxRuns) {
		some, err := scheduler.RunsWithIDs(ctx, w.hub.db, ids)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	w.before = w.highest
	known, changed := map[int64]string{}, []scheduler.Run(nil)
	for _, r := range append(all, recent...) {
		if w.known[r.ID] != r.State {
			changed = append(changed, r)
		}
		w.highest = max(w.highest, r.ID)
		known[r.ID] = r.State
	}
	w.known = known
	return changed, nil
}

// queueEvents returns the queues that have changed in anything but the age of their jobs.
func (w *watch) queueEvents(f *figures) (all []wire.QueueEvent) {
	took := f.at.Sub(w.figures.at).Seconds()
	for i := range f.queues {
		q := wire.QueueEvent{QueueFigures: newQueueFigures(&f.queues[i])}
		if took > 0 {
			q.Done = float64(f.totals[q.Queue].Done-w.figures.totals[q.Queue].Done) / took
		}
		was := w.hub.queues[q.Queue]
		if was.Oldest = q.Oldest; was != q {
			all = append(all, q)
		}
	}
	return all
}
