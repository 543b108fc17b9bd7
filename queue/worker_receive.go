package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Receiver is a Worker for a program without handlers: the program receives jobs, processes
// them however it likes, and reports the outcome of each. It shares blocks with other workers.
type Receiver struct {
	w      *Worker
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
	once   sync.Once

	looks chan struct{} // held by the caller that looks

	// The worker's mutex guards these.
	waiting []*wanted                  // waiting callers, in order
	asked   instant.Instant            // when somebody last waited
	kinds   map[string]instant.Instant // kinds asked for, and when last
	anyKind instant.Instant            // last request for jobs of any kind; 0: none
	looked  int                        // number of looks begun
}

// A Room limits the payloads that callers of [Receiver.ReceiveWithin] are given at a time. The Receiver calls it while it hands
// out jobs, so it must not block, and not call the Receiver.
type Room interface {
	// Free reports whether there is room for a job. If not, the caller gets none, or no more.
	Free() bool

	// Take takes the bytes of a payload, even if there are fewer.
	Take(bytes int)
}

// ErrNoRoom means that there may be jobs, and that there was no room for them.
var ErrNoRoom = errors.New("queue: no room for jobs")

// A wanted is a caller that waits for jobs.
type wanted struct {
	limit int
	room  Room           // nil: it has all the room
	crowd bool           // there was none
	kinds *share.KindSet // nil: all
	got   []*Delivery
	size  int             // total size of their payloads
	since instant.Instant // when it got the first job; 0: none yet
	over  bool            // it has all that it will get
	given chan struct{}   // closed then
}

// maxReceived limits the bytes of payloads received at a time, except for the last one.
const maxReceived = 16 << 20

// lookFirst bounds the final read before Receive reports an empty queue.
const lookFirst = 2 * time.Second

// Receiver returns a started Receiver. Concurrency has no effect: the caller limits the number of
// jobs that are received and not finished. Close it when done.
func (c *Client) Receiver(ctx context.Context, opt WorkerOptions) (*Receiver, error) {
	opt.AckEach = true // so that Complete can wait for it
	w, err := c.Worker(opt)
	if err != nil {
		return nil, err
	}
	w.exact = true
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &Receiver{w: w, cancel: cancel, ended: make(chan struct{}), looks: make(chan struct{}, 1)}
	r.asked, r.kinds, w.unasked = instant.Now(), map[string]instant.Instant{}, r.unasked
	handing := make(chan struct{})
	go func() {
		defer close(handing)
		r.hand()
	}()
	go func() {
		defer close(r.ended)
		r.err = w.run(inner, 0)
		w.mu.Lock()
		w.closing = true // even if it has not reached its drain
		w.work.Broadcast()
		w.mu.Unlock()
		<-handing
	}()
	select {
	case <-w.joined:
		return r, nil
	case <-r.ended:
		cancel()
		return nil, r.err
	case <-ctx.Done():
		r.Close()
		return nil, ctx.Err()
	}
}

// Receive returns up to limit jobs as soon as there is one. It returns none after wait, following
// a final read of the database. Waiting callers get jobs in the order of their calls. It returns
// fewer than limit only if no more are ready in the blocks that this worker has, if reading them
// takes longer than a moment, or if their payloads reach 16 MiB. Each job must be given to
// Complete or Fail before its timeout, if it has one; otherwise it fails. Receive returns
// ErrClosed after Close.
func (r *Receiver) Receive(ctx context.Context, limit int, wait time.Duration) ([]*Delivery, error) {
	return r.ReceiveKinds(ctx, limit, wait, nil)
}

// ReceiveKinds is Receive for jobs of some kinds; an empty list means all. Jobs of other kinds
// stay for callers that ask for them, here or elsewhere: blocks in which nothing else is left go
// to workers of these kinds.
func (r *Receiver) ReceiveKinds(ctx context.Context, limit int, wait time.Duration, kinds []string) ([]*Delivery, error) {
	return r.ReceiveWithin(ctx, limit, wait, kinds, nil)
}

// ReceiveWithin is ReceiveKinds for a caller that has room for some payloads only. It returns no more jobs than there is room for,
// plus one. While there is no room for any, it waits, and others behind it get jobs; call [Receiver.Resume] when there is room
// again. It returns ErrNoRoom if there was none when wait was over. A nil room is ReceiveKinds.
func (r *Receiver) ReceiveWithin(ctx context.Context, limit int, wait time.Duration, kinds []string, room Room) ([]*Delivery, error) {
	if limit < 1 {
		return nil, invalid("limit", "%d is less than 1", limit)
	}
	o := &wanted{limit: limit, room: room, given: make(chan struct{})}
	if len(kinds) > 0 {
		for _, kind := range kinds {
			if err := sqlrun.CheckName(kind); err != nil {
				return nil, invalid("kinds", "%v", err)
			}
		}
		o.kinds = share.NewKindSet(kinds)
	}
	over, err := r.queueUp(o)
	if err != nil {
		return nil, err
	}
	if !over {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-o.given:
		case <-ctx.Done():
		case <-timer.C:
			r.look(ctx, o)
		}
	}
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	r.asked = instant.Now()
	if at := slices.Index(r.waiting, o); at >= 0 {
		r.give() // jobs that came just now
		r.waiting = slices.DeleteFunc(r.waiting, func(other *wanted) bool { return other == o })
	}
	o.got = w.awaitAnnounced(o.got)
	switch {
	case len(o.got) > 0:
		return o.got, nil
	case w.closing:
		return nil, ErrClosed
	case o.crowd && ctx.Err() == nil:
		return nil, ErrNoRoom
	}
	return nil, ctx.Err()
}

// Resume hands out jobs to callers for which there was no room.
func (r *Receiver) Resume() {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.work.Signal()
}

// Unload drops the payloads of received jobs, which the caller does not need any more. It may have used them until now.
func (r *Receiver) Unload(jobs []*Delivery) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range jobs {
		if w.taken[d] {
			d.Payload, d.saved = nil, nil
		}
	}
}

// unaskedFor is how long a Receiver keeps its share of the blocks when nobody asks it for jobs,
// and other receivers are asked: their callers would wait for its jobs.
const unaskedFor = 3 * time.Second

// unasked reports whether nobody has asked for that long. mu is held.
func (r *Receiver) unasked() bool {
	r.choose()
	return len(r.waiting) == 0 && since(r.asked) > unaskedFor
}

const (
	// kindsFor is how long a Receiver handles a kind after it was asked for.
	kindsFor = time.Minute

	// maxKinds is how many kinds the callers of one Receiver may name.
	maxKinds = 1000
)

// noteKinds records the kinds that a caller asks for. mu is held.
func (r *Receiver) noteKinds(asked *share.KindSet) error {
	at, w := instant.Now(), r.w
	if asked == nil {
		r.anyKind = at
		r.choose()
		return nil
	}
	var fresh []string
	for _, kind := range asked.List() {
		if _, ok := r.kinds[kind]; !ok {
			fresh = append(fresh, kind)
		}
	}
	if len(r.kinds)+len(fresh) > maxKinds {
		return invalid("kinds", "those who claim from this queue here have named %d others, and there may be %d; claim without kinds",
			len(r.kinds), maxKinds)
	}
	for _, kind := range asked.List() {
		r.kinds[kind] = at
	}
	if len(fresh) > 0 {
		w.terms.PerCaller = true
		for _, q := range w.queues {
			for _, kind := range fresh { // holds jobs for other callers
				if q.limits.Of(kind) == nil {
					w.setLimit(q, kind, store.Limit{})
				}
			}
			if q.unnamedKinds == nil {
				q.unnamedKinds = w.setLimit(q, restKind, store.Limit{})
			}
			for _, b := range q.blocks {
				w.sortAnew(b)
			}
		}
	}
	r.choose()
	return nil
}

// restKind stands for the kinds that nobody has named. No job can have it: see block.FIFO.
const restKind = " rest"

// choose sets the kinds that the Receiver handles: those that were recently asked for, and all of
// them if nobody has named any, or if a caller asks for any kind. mu is held.
func (r *Receiver) choose() {
	w, does := r.w, (*share.KindSet)(nil)
	if r.anyKind == 0 || since(r.anyKind) >= kindsFor {
		var kinds []string
		for kind, at := range r.kinds {
			if since(at) < kindsFor {
				kinds = append(kinds, kind)
			}
		}
		if len(kinds) > 0 {
			does = share.NewKindSet(kinds)
		}
	}
	if (does == nil) == !w.choice.selective && (does == nil || does.Text == w.choice.handled.Text) {
		return
	}
	w.choice.selective, w.choice.handled = does != nil, does
	for _, q := range w.queues {
		for _, b := range q.blocks {
			w.sortAnew(b)
		}
	}
	w.nudge()
}

// wantKinds makes jobs of some kinds be taken; nil means all. mu is held.
func (w *Worker) wantKinds(kinds *share.KindSet) {
	if w.choice.wanted == kinds {
		return
	}
	w.choice.wanted = kinds
	w.resumeOpen()
	for _, q := range w.queues {
		for _, b := range q.blocks {
			w.offer(b, 0)
		}
	}
}

// resumeOpen schedules another read of jobs that were put back and may begin now. mu is held.
func (w *Worker) resumeOpen() {
	if !w.terms.PerCaller {
		return
	}
	for _, q := range w.queues {
		for _, b := range q.blocks {
			b.ResumeOpen()
		}
	}
}

// queueUp adds a caller to the end of the line. It returns true if there is nothing to wait for.
func (r *Receiver) queueUp(o *wanted) (over bool, err error) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return true, nil
	}
	if err := r.noteKinds(o.kinds); err != nil {
		return true, err
	}
	r.waiting = append(r.waiting, o)
	r.give()
	r.asked = instant.Now()
	if o.over {
		return true, nil
	}
	if len(r.waiting) == 1 {
		w.work.Signal() // hand waits for work from now on
	}
	return false, nil
}

// hand distributes arriving jobs. One goroutine waits on behalf of all callers, so that a commit
// wakes one goroutine and not a thousand.
func (r *Receiver) hand() {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closing && !w.stopped {
		if len(r.waiting) == 0 {
			w.work.Wait() // not counted as idle: nobody asks for work
			continue
		}
		if r.give(); len(r.waiting) > 0 {
			w.await()
		}
	}
	for len(r.waiting) > 0 {
		r.dismiss(0)
	}
}

// give distributes the available jobs to those callers that have waited longest and want them. mu
// is held, so no caller leaves meanwhile: a job goes to a caller that takes it, or stays.
func (r *Receiver) give() {
	w := r.w
	defer w.wantKinds(nil)
	for i := 0; i < len(r.waiting) && !w.closing; {
		o := r.waiting[i]
		w.wantKinds(o.kinds)
		for !o.filled() {
			if o.crowd = o.room != nil && !o.room.Free(); o.crowd {
				break
			}
			d := w.popReady()
			if d == nil {
				break
			}
			w.taken[d] = true
			o.got = append(o.got, d)
			o.size += len(d.Payload)
			if o.room != nil {
				o.room.Take(len(d.Payload))
			}
		}
		if len(o.got) > 0 && o.since == 0 {
			o.since = instant.Now()
		}
		w.resumeOpen()
		if len(o.got) == 0 || !o.crowd && !o.filled() && since(o.since) < w.patience && w.readsMore() {
			if o.kinds == nil && !o.crowd {
				return // everything available has been given
			}
			i++ // others may want the rest
			continue
		}
		r.dismiss(i)
	}
}

// filled reports whether a waiting caller has as many jobs as it may get.
func (o *wanted) filled() bool { return len(o.got) >= o.limit || o.size >= maxReceived }

// dismiss answers a waiting caller. mu is held.
func (r *Receiver) dismiss(at int) {
	o := r.waiting[at]
	r.waiting, o.over = slices.Delete(r.waiting, at, at+1), true
	close(o.given)
}

// readsMore reports whether jobs known to exist are about to be read. If so, work is signalled
// when that is done. A block that merely may have new jobs does not count: a caller that waits
// for one job should not wait for another read. mu is held.
func (w *Worker) readsMore() (more bool) {
	for _, q := range w.queues {
		if !q.opens(q.limits.Own()) {
			continue
		}
		reads := q.joining
		for _, b := range q.blocks {
			reads = reads || b.Loads() || b.readable() && (b.Reads.Unseen || b.Reads.Full || b.Reads.Told)
		}
		q.waits = q.waits || reads
		more = more || reads
	}
	return more
}

// look makes the worker read the database for a caller whose time is over, so that an empty
// answer means that there was no job, and not that nobody had looked yet. Concurrent callers
// share a read, but never one that had begun before they asked.
func (r *Receiver) look(ctx context.Context, o *wanted) {
	w := r.w
	ctx, cancel := context.WithTimeout(ctx, lookFirst)
	defer cancel()
	w.mu.Lock()
	mine := r.looked + 1
	w.mu.Unlock()
	select {
	case r.looks <- struct{}{}:
		defer func() { <-r.looks }()
	case <-o.given:
		return
	case <-ctx.Done():
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.looked >= mine {
		return // a whole look while it waited for its turn
	}
	r.looked++
	if w.waitUntil(ctx, o, func() bool { return w.sharings > 0 }) != nil { // it has blocks, if there are any for it
		return
	}
	w.readAgain()
	w.mu.Unlock()
	w.lookSoon()
	_, err := w.lookForNew(ctx, false)
	w.mu.Lock()
	if err == nil {
		_ = w.waitUntil(ctx, o, func() bool {
			r.give()
			return w.hasRead() && !w.readsMore()
		})
	}
}

// readAgain schedules another read of blocks that are being read: these reads may miss what has
// been committed since they began. mu is held.
func (w *Worker) readAgain() {
	for _, q := range w.queues {
		for _, b := range q.blocks {
			if b.Serving {
				b.Reads.Ring()
			}
		}
	}
}

// waitUntil waits for a condition that comes true soon, or until the caller has been answered. mu
// is held.
func (w *Worker) waitUntil(ctx context.Context, o *wanted, done func() bool) error {
	for !done() && !o.over && !w.closing {
		if err := w.moment(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hasRead reports that no block with possible new jobs remains to be read. mu is held.
func (w *Worker) hasRead() bool {
	for _, q := range w.queues {
		for _, b := range q.blocks {
			reads := b.Count == 0 && !b.Crowded() && (b.Serving || b.Reads.Dirty || b.Dues.Ripe)
			if b.Open() && b.failures == 0 && (reads || b.Lacks()) {
				return false
			}
		}
	}
	return true
}

// Context returns the job's context: it ends when the job no longer belongs to this process, or
// when its timeout is over.
func (d *Delivery) Context() context.Context { return &d.ctx }

// Complete reports that a received job is done, and waits until that is committed. It returns
// ErrLost if the job no longer belonged to this process: then it is or was done elsewhere.
func (r *Receiver) Complete(ctx context.Context, d *Delivery) error {
	return r.Settle(ctx, []Outcome{{Delivery: d}})[0]
}

// Fail reports that a received job has failed, with an error as a handler would return it, and
// waits until that is committed.
func (r *Receiver) Fail(ctx context.Context, d *Delivery, err error) error {
	return r.Settle(ctx, []Outcome{{Delivery: d, Err: orText(err, "failed")}})[0]
}

// An Outcome is the outcome of a received job: nil, or an error as a handler would return it.
type Outcome struct {
	Delivery *Delivery
	Err      error
}

// Settle is Complete and Fail for several jobs, which share statements. It returns what these
// would return for each job in its place.
func (r *Receiver) Settle(ctx context.Context, all []Outcome) []error {
	w := r.w
	errs, said := make([]error, len(all)), make([]tried, len(all))
	for i, o := range all {
		said[i].stack, said[i].err = answerOf(o.Err)
	}
	w.mu.Lock()
	w.heedHandBacks(said)
	for i, o := range all {
		d, err := o.Delivery, said[i].err
		if !w.taken[d] {
			errs[i] = fmt.Errorf("%w: job %d was finished before, or its time is over", ErrLost, d.ID)
			continue
		}
		delete(w.taken, d)
		if d.ctx.over && errors.Is(d.ctx.cause, ErrLost) {
			err = d.ctx.cause
		}
		d.ctx.end(nil)
		w.end(d, err, said[i].stack)
	}
	w.mu.Unlock()
	for i, o := range all {
		if errs[i] != nil {
			continue
		}
		select {
		case <-o.Delivery.acked:
			errs[i] = o.Delivery.fate
		case <-ctx.Done():
			errs[i] = ctx.Err()
		case <-w.ended:
			w.mu.Lock()
			if errs[i] = o.Delivery.fate; o.Delivery.state.Phase != block.PhaseWritten {
				errs[i] = ErrUnknownOutcome
			}
			w.mu.Unlock()
		}
	}
	return errs
}

// Close hands the receiver's blocks over, and waits up to the grace for jobs that were received
// and not finished.
func (r *Receiver) Close() error {
	r.once.Do(r.cancel)
	<-r.ended
	return r.err
}

// Node returns the worker's name in the tables. After the loss of its lease it gets another one,
// and has none until then.
func (r *Receiver) Node() string {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return r.w.lease.node
}
