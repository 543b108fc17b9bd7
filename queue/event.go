package queue

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Values of the Outcome of an [Event].
const (
	EventDone      = "done"
	EventDiscarded = "discarded" // not done, and it need not be: see [Discard]
	EventFailed    = "failed"    // to be retried after After
	EventSnoozed   = "snoozed"   // the attempt does not count
	EventDead      = "dead"      // it will not be retried
	EventCancelled = "cancelled" // removed while it ran
	EventLost      = "lost"      // it no longer belongs to this worker: another one runs it, or has done it
)

// An Event is the end of an attempt at a job, after its outcome was committed.
type Event struct {
	Job
	ID      int64
	Attempt int
	Outcome string        // EventDone and so on
	Err     error         // what the handler returned; nil: done
	After   time.Duration // the delay until the retry of a failed or snoozed job
	Took    time.Duration // duration of the attempt; 0: it did not begin here
}

// EventOptions select events. The zero value selects all.
type EventOptions struct {
	Kinds    []string // kinds of jobs; empty: all
	Outcomes []string // EventDone and so on; empty: all
	Buffer   int      // how many events may wait for the receiver; default: 1000
}

// Events delivers the events of a client's workers on C, for each worker in the order in which
// the outcomes were committed. No worker ever waits for a receiver: when the buffer is full,
// further events are dropped, and counted.
type Events struct {
	C <-chan Event

	c       chan Event
	opt     EventOptions
	of      *eventHub
	dropped atomic.Int64
}

// Dropped returns how many events were dropped because the buffer was full.
func (e *Events) Dropped() int64 { return e.dropped.Load() }

// Close stops the events, and closes C. It may be called again.
func (e *Events) Close() {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	if i := slices.Index(e.of.all, e); i >= 0 {
		e.of.all = slices.Delete(e.of.all, i, i+1)
		e.of.some.Store(len(e.of.all) > 0)
		close(e.c)
	}
}

// Events returns the outcomes of the jobs that this client's workers process, from now on. It
// does not cover the workers of other processes; [Client.Finished] counts for all of them. Close it
// when it is no longer needed.
func (c *Client) Events(opt EventOptions) (*Events, error) {
	opt.Buffer = cmp.Or(opt.Buffer, 1000)
	if opt.Buffer < 0 {
		return nil, invalid("buffer", "%d is negative", opt.Buffer)
	}
	known := []string{EventDone, EventDiscarded, EventFailed, EventSnoozed, EventDead, EventCancelled, EventLost}
	for _, outcome := range opt.Outcomes {
		if !slices.Contains(known, outcome) {
			return nil, invalid("outcome", "%q is not known; use %q", outcome, known)
		}
	}
	channel := make(chan Event, opt.Buffer)
	e := &Events{C: channel, c: channel, opt: opt, of: &c.events}
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	e.of.all = append(e.of.all, e)
	e.of.some.Store(true)
	return e, nil
}

// An eventHub holds the receivers of a client's events.
type eventHub struct {
	some atomic.Bool // there is a receiver: spares workers the lock
	mu   sync.Mutex
	all  []*Events
}

// tell sends an event to all receivers that want it and have room. It never blocks: workers call it with their mutexes held.
func (h *eventHub) tell(event Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.all {
		if len(e.opt.Kinds) > 0 && !slices.Contains(e.opt.Kinds, event.Kind) || len(e.opt.Outcomes) > 0 &&
			!slices.Contains(e.opt.Outcomes, event.Outcome) {
			continue
		}
		select {
		case e.c <- event:
		default:
			e.dropped.Add(1)
		}
	}
}
