package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/wire"
)

// A Handler does a job. Its result becomes the job's, which is kept in its group, and in its queue if that keeps done jobs.
// After an error the job is retried
// according to the queue's settings, or handled as [RetryAfter], [Bury] or [Discard] say. The context
// ends when the job is lost, or when the worker stops and its grace is over.
type Handler func(ctx context.Context, j *wire.Claim) (result any, err error)

// WorkOptions configures a worker. Queue and Handle are required.
type WorkOptions struct {
	Queue       string
	Handle      Handler
	Kinds       []string      // of jobs, up to 100; default: all
	Concurrency int           // jobs at a time, up to 1000; default: 1
	Lease       time.Duration // of a job; if this client dies, others get the job after it; default: 30s
	Wait        time.Duration // how long a claim waits for a job; default: 20s
	Grace       time.Duration // for running jobs when the worker stops; default: 30s
	Logger      *slog.Logger  // default: slog.Default
}

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 5 * time.Second
	maxClaims  = 1000

	// lastWords bounds how long a stopping worker tries to report its jobs' outcomes after its
	// grace.
	lastWords = 5 * time.Second
)

// Work does the jobs of a queue until ctx ends, and then finishes running jobs. Jobs that are not done
// within the grace are given back, and the attempt does not count. Work then returns nil. It returns
// an error if the daemon refuses its claims. It keeps trying while the daemon does not answer and
// while the queue does not exist.
//
// A job is done at least once: it is done again if its outcome does not reach the daemon before its
// lease ends. Leases are renewed at the daemon that granted them, so if several daemons share one
// address, a worker must reach the same one each time.
func (c *Client) Work(ctx context.Context, opt WorkOptions) error {
	opt.Concurrency = cmp.Or(opt.Concurrency, 1)
	opt.Lease = cmp.Or(opt.Lease, 30*time.Second)
	opt.Wait = cmp.Or(opt.Wait, 20*time.Second)
	opt.Grace = cmp.Or(opt.Grace, 30*time.Second)
	switch {
	case opt.Queue == "" || opt.Handle == nil:
		return errors.New("client: a worker needs a queue and a handler")
	case opt.Concurrency < 1 || opt.Concurrency > maxClaims:
		return fmt.Errorf("client: concurrency %d: use 1 to %d", opt.Concurrency, maxClaims)
	case opt.Lease < time.Second || opt.Wait < 0 || opt.Grace < 0:
		return errors.New("client: a lease is a second at least, and no time is negative")
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	opt.Logger = barrier.Logger(opt.Logger)
	w := &worker{
		c: c, opt: opt, log: opt.Logger.With("queue", opt.Queue), free: make(chan struct{}, opt.Concurrency),
		ended: make(chan *underWay, opt.Concurrency), held: map[string]*underWay{},
	}
	return w.run(ctx)
}

// A worker has four parts: one goroutine claims jobs, one per job runs the handler, one reports
// outcomes to the daemon, and one renews leases until the outcomes are reported.
type worker struct {
	c    *Client
	opt  WorkOptions
	log  *slog.Logger
	free chan struct{} // has one token per running job
	jobs sync.WaitGroup

	ended chan *underWay // jobs whose outcome must be reported

	mu   sync.Mutex
	held map[string]*underWay // by token
}

// An underWay is a job from its claim until the daemon knows its outcome.
type underWay struct {
	*wire.Claim
	lose   context.CancelCauseFunc
	expiry *time.Timer // marks it lost when its lease may have ended

	result   any
	err      error
	released bool // to be given back
	lost     bool // nothing is to be reported
}

func (w *worker) run(ctx context.Context) error {
	// Handlers go on after ctx ends, until the grace is over.
	doing, stopDoing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopDoing()
	telling, stopTelling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTelling()
	var others sync.WaitGroup
	others.Go(func() { w.renew(telling) })
	others.Go(func() { w.tell(telling) })
	err := w.claim(ctx, doing)
	grace := time.AfterFunc(w.opt.Grace, stopDoing)
	last := time.AfterFunc(w.opt.Grace+lastWords, stopTelling)
	w.jobs.Wait()
	grace.Stop()
	last.Stop()
	stopTelling()
	close(w.ended)
	others.Wait()
	return err
}

// claim claims as many jobs as there are free places, until ctx ends.
func (w *worker) claim(ctx, doing context.Context) error {
	failures := 0
	for {
		n := w.places(ctx)
		if n == 0 {
			return nil
		}
		began := time.Now() //nolint:forbidigo // measures how long the daemon has waited
		jobs, err := w.c.Claim(ctx, w.opt.Queue, ClaimOptions{Max: n, Lease: w.opt.Lease, Wait: w.opt.Wait, Kinds: w.opt.Kinds})
		for range n - len(jobs) {
			<-w.free
		}
		for i := range jobs {
			w.begin(ctx, doing, &jobs[i])
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && refused(status(err)) && !errors.Is(err, ErrNotFound):
			return err
		case err != nil: // also if the queue does not exist yet
			failures++
			w.log.Warn("claiming jobs failed; will retry", "err", err)
		case len(jobs) == 0 && time.Since(began) < w.opt.Wait/2:
			failures++ // a stopping daemon answers at once, without waiting for jobs
		default:
			failures = 0
			continue
		}
		if pause(ctx, pace.Delay(firstPause, maxPause, failures, rand.Float64())) != nil {
			return nil
		}
	}
}

// refused reports whether a retry is pointless.
func refused(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusConflict && status != http.StatusRequestTimeout &&
		status != http.StatusTooManyRequests
}

// places waits for a free place and takes all free ones. It returns 0 when ctx has ended.
func (w *worker) places(ctx context.Context) (n int) {
	select {
	case w.free <- struct{}{}:
		n = 1
	case <-ctx.Done():
		return 0
	}
	for n < w.opt.Concurrency {
		select {
		case w.free <- struct{}{}:
			n++
		default:
			return n
		}
	}
	return n
}

// begin starts a job, or gives it back if the worker stops.
func (w *worker) begin(ctx, doing context.Context, j *wire.Claim) {
	own, lose := context.WithCancelCause(doing)
	u := &underWay{Claim: j, lose: lose, released: ctx.Err() != nil}
	// Its lease began when the daemon sent it; allow a tenth for the way.
	u.expiry = time.AfterFunc(w.opt.Lease*9/10, func() { lose(ErrLost) })
	w.mu.Lock()
	w.held[j.Token] = u
	w.mu.Unlock()
	w.jobs.Add(1) // until the daemon knows its outcome
	go func() {
		if u.released {
			w.ended <- u
			return
		}
		u.err = errors.New("the handler ended its goroutine") // unless it returns
		defer func() {
			u.released = u.err != nil && doing.Err() != nil
			if u.err != nil {
				u.lost, _ = barrier.Is(context.Cause(own), ErrLost)
			}
			w.ended <- u
		}()
		u.result, u.err = w.handle(own, j)
	}()
}

// handle runs the handler and encodes its result.
func (w *worker) handle(ctx context.Context, j *wire.Claim) (result any, err error) {
	_, err = barrier.Call(func() (err error) {
		result, err = w.opt.Handle(ctx, j)
		return err
	})
	if err != nil {
		return nil, outcomeOf(err)
	}
	if result == nil {
		return nil, err
	}
	var text []byte
	_, err = barrier.Call(func() (err error) {
		text, err = encode(result)
		return err
	})
	if err != nil {
		return nil, Bury(fmt.Errorf("its result is not JSON: %w", err))
	}
	return json.RawMessage(text), nil
}

// tell reports outcomes to the daemon, batching those that arrive during the previous report.
func (w *worker) tell(ctx context.Context) {
	for u := range w.ended {
		all := []*underWay{u}
		for range len(w.ended) { // there is no other receiver
			all = append(all, <-w.ended)
		}
		w.tellAll(ctx, all)
		for _, u := range all {
			w.forget(u)
		}
	}
}

func (w *worker) forget(u *underWay) {
	u.expiry.Stop()
	u.lose(nil)
	w.mu.Lock()
	delete(w.held, u.Token)
	w.mu.Unlock()
	<-w.free
	w.jobs.Done()
}

func (w *worker) tellAll(ctx context.Context, all []*underWay) {
	var done []Done
	var failed []wire.FailedClaim
	var back []string
	for _, u := range all {
		switch {
		case u.lost:
			w.log.Warn("a job was lost; it is done again", "id", u.ID, "kind", u.Kind)
		case u.released:
			back = append(back, u.Token)
		case u.err != nil:
			o := outcomeOf(u.err)
			w.log.Warn("a job has failed", "id", u.ID, "kind", u.Kind, "attempt", u.Attempt, "err", u.err)
			failed = append(failed, wire.FailedClaim{
				Token: u.Token, Error: o.text(), RetryAfter: wire.GivenDuration(o.after), Dead: o.dead, Discard: o.discard,
			})
		default:
			done = append(done, Done{u.Token, u.result})
		}
	}
	for _, r := range insist(ctx, w, "done", done, w.c.Complete) { // refused, because a result is too large, say
		failed = append(failed, wire.FailedClaim{Token: r.claim.Token, Error: outcomeOf(r.err).text()})
	}
	insist(ctx, w, "failed", failed, w.c.Fail)
	insist(ctx, w, "given back", back, w.c.Release)
}

// A refusal is a claim that the daemon refuses as it stands.
type refusal[T any] struct {
	claim T
	err   error
}

// insist reports something to the daemon for as long as it can matter: a lease. It returns what the
// daemon refuses.
func insist[T any](ctx context.Context, w *worker, what string, claims []T,
	tell func(context.Context, ...T) (wire.SettledClaims, error),
) []refusal[T] {
	n := len(claims)
	if n == 0 {
		return nil
	}
	began := time.Now() //nolint:forbidigo // measures a duration
	for failures := 1; ; failures++ {
		s, err := tell(ctx, claims...)
		switch {
		case err == nil && len(s.Lost) > 0:
			w.log.Warn("jobs were lost; they are done again", "outcome", what, "jobs", len(s.Lost))
			return nil
		case err == nil:
			return nil
		case refused(status(err)) && n > 1: // a single one of them may be the reason
			return append(insist(ctx, w, what, claims[:n/2], tell), insist(ctx, w, what, claims[n/2:], tell)...)
		case refused(status(err)):
			w.log.Warn("the outcome of a job is refused", "outcome", what, "err", err)
			return []refusal[T]{{claims[0], err}}
		case errors.Is(err, ErrConflict), time.Since(began) > w.opt.Lease:
			w.log.Warn("the outcome of jobs did not arrive; they are done again", "outcome", what, "jobs", n, "err", err)
			return nil
		}
		if pause(ctx, pace.Delay(firstPause, maxPause, failures, rand.Float64())) != nil {
			return nil
		}
	}
}

// renew renews the leases of all running jobs, three times per lease.
func (w *worker) renew(ctx context.Context) {
	for range pace.Ticks(ctx, w.opt.Lease/3) {
		w.heartbeat(ctx)
	}
}

func (w *worker) heartbeat(ctx context.Context) {
	var tokens []string
	w.mu.Lock()
	for t := range w.held {
		tokens = append(tokens, t)
	}
	w.mu.Unlock()
	if len(tokens) == 0 {
		return
	}
	own, cancel := context.WithTimeout(ctx, w.opt.Lease/3)
	defer cancel()
	if n, err := w.extend(own, tokens); err != nil && ctx.Err() == nil {
		w.log.Warn("the leases of jobs could not be renewed", "jobs", n, "err", err)
	}
}

// extend renews the leases of jobs. It returns how many it could not renew, and why.
func (w *worker) extend(ctx context.Context, tokens []string) (failed int, err error) {
	began := time.Now() //nolint:forbidigo // the lease is counted from before the request
	s, err := w.c.Heartbeat(ctx, w.opt.Lease, tokens...)
	n := len(tokens)
	switch {
	case errors.Is(err, ErrConflict):
		s = wire.SettledClaims{Lost: tokens}
	case status(err) == http.StatusMisdirectedRequest && n > 1: // one of them may belong to another daemon
		failed, err = w.extend(ctx, tokens[:n/2])
		more, also := w.extend(ctx, tokens[n/2:])
		if err == nil {
			err = also
		}
		return failed + more, err
	case err != nil:
		return n, err
	}
	w.extended(began, tokens, s.Lost)
	return 0, nil
}

// extended records the result of renewing leases.
func (w *worker) extended(began time.Time, tokens, gone []string) {
	lost := map[string]bool{}
	for _, t := range gone {
		lost[t] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range tokens {
		switch u := w.held[t]; {
		case u == nil: // it has ended meanwhile
		case lost[t]:
			u.lose(ErrLost)
		case u.expiry.Stop():
			u.expiry.Reset(w.opt.Lease*9/10 - time.Since(began))
		}
	}
}
