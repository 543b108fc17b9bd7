package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Who waits for a job looks for its end in the tables: whoever has ended it, a worker of this process or of another, a
// daemon, a session at the SQL prompt, the end is a row that its transaction has written. All who wait share one look.
// Workers of this process say which jobs have ended, so that the look comes at once. Nobody else does: jobs whose end
// nobody awaits would have to pay for that, too.

const (
	// A look comes after a tenth of the time waited so far, within these bounds.
	firstLook   = 20 * time.Millisecond
	longestLook = time.Second
	lookShare   = 10

	// A job that has not ended is looked for after a quarter of that time: it may have been moved to another queue, or
	// removed by hand.
	firstCheck   = time.Second
	longestCheck = 10 * time.Second
	checkShare   = 4

	// nextLook bounds how often ends in this process cause a look.
	nextLook = 2 * time.Millisecond
)

// Await waits until a job has ended, and returns how: done, with the result that its handler has set, discarded, dead, or
// cancelled. It knows that of jobs of queues that keep done jobs ([github.com/dbcron/dbcron/queue/admin.Queue].KeepDone),
// for as long as they are kept. queue is the queue of the job, as in [Enqueued], or "", which takes longer to find if there
// are very many queues.
//
// The job may have ended before the call, be delayed, be retried, or move to another queue meanwhile. It has ended once its
// end is committed. A dead job may be retried by somebody; its result says that it was dead.
//
// It returns
//   - [ErrNotKept] at once if the job's queue keeps no done jobs, unless the job is dead; and later if the job has left
//     nothing: its queue began to keep jobs only a moment ago, somebody has purged it, or another one has replaced it
//     (see [Job].Debounce);
//   - [ErrNotFound] if there is no such job: it never existed, has ended in a queue that keeps nothing, or was kept for
//     long enough;
//   - the error of ctx, which it wraps, when that ends. Failures to reach the database do not end it before.
//
// The end of a job that a worker of this process does is noticed at once. That of others is noticed by polling: within a
// tenth of the time waited so far, but not before 20 ms, and within a second. All calls of a [Client] share the
// statements, and none holds a connection while it waits. Workers pay nothing for those who wait elsewhere.
//
// A handler that awaits a job which only its own worker does keeps one of that worker's slots meanwhile, so the worker
// needs more of them.
func (c *Client) Await(ctx context.Context, queue string, id int64) (Result, error) {
	w := c.awaits.begin(id)
	defer c.awaits.end(w)
	for failures := 0; ; {
		r, err := c.awaitedNow(ctx, w, queue)
		if err == nil {
			if r != nil {
				return *r, nil
			}
			break
		}
		if !c.passes(err) || ctx.Err() != nil {
			return Result{}, awaiting(ctx, id, err)
		}
		failures++
		if !pace.Sleep(ctx, pauseAfter(failures)) {
			return Result{}, awaiting(ctx, id, err)
		}
	}
	select {
	case a := <-w.ended:
		return a.Result, a.err
	case <-ctx.Done():
		return Result{}, awaiting(ctx, id, c.awaits.lastError())
	}
}

// awaiting returns the error of a wait that has ended: that of its context, if that has ended, and why the database could
// not be asked.
func awaiting(ctx context.Context, id int64, err error) error {
	cause := ctx.Err()
	switch {
	case cause == nil:
		return err
	case err == nil || errors.Is(err, cause):
		return fmt.Errorf("queue: waiting for job %d: %w", id, cause)
	}
	return fmt.Errorf("queue: waiting for job %d: %w: %w", id, cause, err)
}

// passes reports whether an error of a look may pass.
func (c *Client) passes(err error) bool {
	d := c.db.Dialect
	return d.Unsent(err) || d.Uncertain(err) || d.Retryable(err)
}

// awaitedNow looks for a job in all tables. It returns how it has ended, or nil if it has not: then the looks are about it
// from now on.
func (c *Client) awaitedNow(ctx context.Context, w *awaited, queue string) (*Result, error) {
	ctx, end := c.spared(ctx)
	defer end()
	first, last := 0, math.MaxInt32
	if queue != "" {
		q, err := c.read(ctx, queue)
		if err != nil {
			return nil, err
		}
		first, last = q.ID, q.ID
	}
	for {
		spots, err := store.Locate(ctx, c.dbOf(ctx), first, last, w.id)
		if err != nil {
			return nil, err
		}
		switch {
		case len(spots) == 0 && queue != "" && first == last: // it may have been moved
			first, last = 0, math.MaxInt32
			continue
		case len(spots) == 0 && w.seen():
			return nil, fmt.Errorf("%w: job %d has left nothing: a newer one of its unique key has replaced it, somebody has purged it, "+
				"or it ended when its queue did not keep done jobs yet", ErrNotKept, w.id)
		case len(spots) == 0:
			return nil, fmt.Errorf("%w: job %d: it has ended and is not kept, or it never existed", ErrNotFound, w.id)
		case len(spots) > 1:
			return nil, fmt.Errorf("%w: several jobs have the id %d; name the queue", ErrState, w.id)
		}
		at := spots[0]
		if at.State == "dead" || at.State == "done" {
			ended, err := store.EndedOf(ctx, c.dbOf(ctx), at.Queue, []int64{w.id})
			if err != nil {
				return nil, err
			}
			if len(ended) == 0 { // it was retried, or purged, meanwhile
				continue
			}
			r := resultOf(&ended[0], at.Name)
			return &r, nil
		}
		q, err := c.read(ctx, at.Name)
		if err != nil {
			return nil, err
		}
		if q.KeepDone <= 0 {
			return nil, notKept(at.Name)
		}
		c.awaits.found(w, at.Queue, at.Name)
		return nil, nil
	}
}

// notKept is the error of a queue that keeps no done jobs.
func notKept(queue string) error {
	return fmt.Errorf("%w: queue %q keeps no done jobs; let it, with dbcron queue set %s --keep-done 1h", ErrNotKept, queue, queue)
}

func resultOf(a *store.Awaited, queue string) Result {
	return Result{Job: a.ID, Queue: queue, Kind: a.Kind, State: a.Outcome, Result: json.RawMessage(a.Result), Error: a.Error}
}

// awaits are the calls of a client that wait for jobs.
type awaits struct {
	c *Client

	mu      sync.Mutex
	all     map[int64][]*awaited
	kick    chan struct{}
	stop    func() // ends the looks; nil: there are none
	trouble error  // of the last look; nil: it worked
}

// An awaited is a call that waits for a job.
type awaited struct {
	id    int64
	ended chan awaitedEnd // receives one value

	// The mutex of the awaits guards these.
	queue     int // 0: it is not known yet
	name      string
	there     bool // it was seen
	said      bool // a worker of this process says that an attempt at it has ended
	over      bool // it has its answer
	since     instant.Instant
	next      instant.Instant // its next look
	nextCheck instant.Instant // and the next one whether it is there at all
	c         *awaits
}

type awaitedEnd struct {
	Result
	err error
}

func (a *awaits) init(c *Client) {
	a.c, a.all, a.kick = c, map[int64][]*awaited{}, make(chan struct{}, 1)
}

// begin enters a call before its job is looked for, so that no end is missed.
func (a *awaits) begin(id int64) *awaited {
	now := instant.Now()
	w := &awaited{id: id, ended: make(chan awaitedEnd, 1), since: now, next: now.Add(firstLook), nextCheck: now.Add(firstCheck), c: a}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[id] = append(a.all[id], w)
	if a.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		deaf := a.c.bells.hub.Ends.Listen(a.heard)
		a.stop = func() { cancel(); deaf() }
		go a.look(ctx)
	}
	return w
}

func (a *awaits) end(w *awaited) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := slices.DeleteFunc(a.all[w.id], func(x *awaited) bool { return x == w })
	if len(left) > 0 {
		a.all[w.id] = left
		return
	}
	if delete(a.all, w.id); len(a.all) == 0 {
		a.stop()
		a.stop, a.trouble = nil, nil
	}
}

func (a *awaits) found(w *awaited, queue int, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.queue, w.name, w.there = queue, name, true
	signal(a.kick) // the looks do not know when its next one is due
}

func (w *awaited) seen() bool {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.there
}

func (a *awaits) lastError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.trouble
}

// heard has a job looked for now: a worker of this process has ended an attempt at it.
func (a *awaits) heard(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting := a.all[id]
	for _, w := range waiting {
		w.next, w.said = 0, true
	}
	if len(waiting) > 0 {
		signal(a.kick)
	}
}

// look looks for the ends of jobs until ctx ends.
func (a *awaits) look(ctx context.Context) {
	for {
		due, wait := a.due()
		if len(due) > 0 {
			a.lookFor(ctx, due)
			wait = nextLook // further ends of this moment share a look
		} else {
			select {
			case <-ctx.Done():
				return
			case <-a.kick:
				continue
			case <-time.After(wait):
				continue
			}
		}
		if !pace.Sleep(ctx, wait) {
			return
		}
	}
}

// due returns the calls whose look is due, with those whose look is due soon; and until when there is none.
func (a *awaits) due() (due []*awaited, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := instant.Now()
	wait = longestLook
	any := false
	for _, list := range a.all {
		for _, w := range list {
			if w.queue == 0 || w.over {
				continue
			}
			any = any || w.next <= now
			wait = min(wait, w.next.Sub(now))
			if w.next <= now.Add(w.pause(now)/2) {
				due = append(due, w)
			}
		}
	}
	if !any {
		return nil, max(wait, time.Millisecond)
	}
	return due, 0
}

// pause returns the time between two looks.
func (w *awaited) pause(now instant.Instant) time.Duration {
	return min(max(now.Sub(w.since)/lookShare, firstLook), longestLook)
}

// lookFor looks for the ends of some jobs, in one round trip for each queue and thousand jobs.
func (a *awaits) lookFor(ctx context.Context, due []*awaited) {
	on, end := a.c.spared(ctx)
	defer end()
	var errs []error
	for queue, at := range a.places(due) {
		errs = append(errs, a.lookIn(on, queue, at))
	}
	err := errors.Join(errs...)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trouble = err
	for _, w := range due {
		if err != nil && !w.over && ctx.Err() == nil && !a.c.passes(err) {
			w.over = true
			w.ended <- awaitedEnd{err: err}
		}
	}
}

// lookIn looks for the ends of jobs of a queue.
func (a *awaits) lookIn(ctx context.Context, queue int, at map[int64][]*awaited) error {
	ended, err := store.EndedOf(ctx, a.c.dbOf(ctx), queue, slices.Collect(maps.Keys(at)))
	if err != nil {
		return err
	}
	for i := range ended {
		for _, w := range at[ended[i].ID] {
			a.answer(w, awaitedEnd{Result: resultOf(&ended[i], w.name)})
		}
		delete(at, ended[i].ID)
	}
	return a.check(ctx, queue, at)
}

// places returns the calls by their queues and jobs. It sets the time of the next look, which comes earlier if an end is
// heard of meanwhile.
func (a *awaits) places(list []*awaited) map[int]map[int64][]*awaited {
	a.mu.Lock()
	defer a.mu.Unlock()
	all, now := map[int]map[int64][]*awaited{}, instant.Now()
	for _, w := range list {
		w.next = now.Add(w.pause(now))
		if all[w.queue] == nil {
			all[w.queue] = map[int64][]*awaited{}
		}
		all[w.queue][w.id] = append(all[w.queue][w.id], w)
	}
	return all
}

// check looks, now and then, whether jobs that have not ended are where they were seen. It searches those that are not.
func (a *awaits) check(ctx context.Context, queue int, at map[int64][]*awaited) error {
	ids := a.toCheck(at)
	if len(ids) == 0 {
		return nil
	}
	there, err := store.StillThere(ctx, &a.c.dbOf(ctx).Session, queue, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if there[id] {
			continue
		}
		for _, w := range at[id] {
			r, err := a.c.awaitedNow(ctx, w, "")
			switch {
			case err != nil && (ctx.Err() != nil || a.c.passes(err)):
				return err
			case err != nil:
				a.answer(w, awaitedEnd{err: err})
			case r != nil:
				a.answer(w, awaitedEnd{Result: *r})
			}
		}
	}
	return nil
}

// toCheck returns the jobs whose check is due.
func (a *awaits) toCheck(at map[int64][]*awaited) (ids []int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := instant.Now()
	for id, list := range at {
		is := false
		for _, w := range list {
			if w.nextCheck <= now || w.said {
				is, w.said = true, false
				w.nextCheck = now.Add(min(max(now.Sub(w.since)/checkShare, firstCheck), longestCheck))
			}
		}
		if is {
			ids = append(ids, id)
		}
	}
	return ids
}

func (a *awaits) answer(w *awaited, end awaitedEnd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.over {
		w.over = true
		w.ended <- end
	}
}
