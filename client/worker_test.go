package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/wire"
)

// working is a worker that a test has started.
type working struct {
	stop  context.CancelFunc
	ended chan error
}

// work starts a worker with long limits, which ends with the test at the latest.
func work(t *testing.T, p http.Handler, opt client.WorkOptions) *working {
	t.Helper()
	c := serve(t, p, client.Options{})
	ctx, stop := context.WithCancel(t.Context())
	w := &working{stop, make(chan error, 1)}
	opt.Queue, opt.Logger = "q", slog.New(slog.DiscardHandler)
	if opt.Lease == 0 {
		opt.Lease = longWait
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.ended <- c.Work(ctx, opt)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return w
}

func TestPull(t *testing.T) {
	t.Parallel()
	p := startPuller(t)
	c := serve(t, p, client.Options{})
	ctx := t.Context()
	if jobs, err := c.Claim(ctx, "q", client.ClaimOptions{}); err != nil || len(jobs) != 0 {
		t.Fatalf("got %v, %v", jobs, err)
	}
	for _, kind := range []string{"a", "b", "c", "d"} {
		p.enqueue(kind)
	}
	jobs, err := c.Claim(ctx, "q", client.ClaimOptions{Max: 10, Lease: time.Minute, Wait: time.Second})
	must(t, err)
	if len(jobs) != 4 || jobs[0].Attempt != 1 || jobs[0].ID == "" {
		t.Fatalf("got %+v", jobs)
	}
	var payload struct{ N int }
	if err := jobs[0].Decode(&payload); err != nil || payload.N != 1 {
		t.Errorf("got %+v, %v", payload, err)
	}
	s, err := c.Heartbeat(ctx, time.Minute, jobs[0].Token, "gone")
	if err != nil || s.Done != 1 || !slices.Equal(s.Lost, []string{"gone"}) {
		t.Errorf("heartbeat: %+v, %v", s, err)
	}
	_, err = c.Complete(ctx, client.Done{Token: jobs[0].Token, Result: "r"})
	must(t, err)
	_, err = c.Fail(ctx, wire.FailedClaim{Token: jobs[1].Token, Error: "no", RetryAfter: "1m30s"},
		wire.FailedClaim{Token: jobs[2].Token, Error: "never", Dead: true})
	must(t, err)
	_, err = c.Release(ctx, jobs[3].Token)
	must(t, err)
	if got, want := p.outcomes(), []string{
		"a:done:r", "b:failed:no:1m30s:false:false",
		"c:failed:never::true:false",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := c.Complete(ctx, client.Done{Token: jobs[0].Token}); !errors.Is(err, client.ErrConflict) {
		t.Errorf("completing it again: %v", err)
	}
	again, err := c.Claim(ctx, "q", client.ClaimOptions{})
	must(t, err)
	if len(again) != 1 || again[0].Kind != "d" || again[0].Attempt != 1 {
		t.Errorf("what was released: %+v", again)
	}
}

// badError is a program's error, or result, whose methods panic.
type badError struct{}

func (badError) Error() string                { panic("oh, Error") }
func (badError) Unwrap() error                { panic("oh, Unwrap") }
func (badError) MarshalJSON() ([]byte, error) { panic("oh, MarshalJSON") }

func TestWorkerDoesJobs(t *testing.T) {
	t.Parallel()
	p := startPuller(t)
	together := make(chan struct{}, 3)
	all := make(chan struct{})
	work(t, p, client.WorkOptions{Concurrency: 3, Handle: func(_ context.Context, j *wire.Claim) (any, error) {
		if strings.HasPrefix(j.Kind, "together") {
			if together <- struct{}{}; len(together) == 3 {
				close(all)
			}
			<-all
		}
		switch j.Kind {
		case "failed":
			return nil, errors.New("no paper")
		case "later":
			return nil, client.RetryAfter(time.Minute, errors.New("busy"))
		case "dead":
			return nil, client.Bury(errors.New("no such user"))
		case "discard":
			return nil, client.Discard(errors.New("not needed"))
		case "panic":
			panic("oh")
		case "no text":
			return nil, badError{}
		case "buried without text":
			return nil, fmt.Errorf("so: %w", client.Bury(badError{}))
		case "no result":
			return badError{}, nil
		case "leaves":
			runtime.Goexit()
		case "no JSON":
			return func() {}, nil
		case "refused": // and none of those that ended with it
			return "refused", nil
		}
		return len(j.Kind), nil
	}})
	for _, kind := range []string{
		"together1", "together2", "together3", "failed", "later", "dead", "discard",
		"panic", "no text", "buried without text", "no result", "leaves", "no JSON", "refused", "last",
	} {
		p.enqueue(kind)
	}
	want := []string{
		"buried without text:failed:so: %!v(PANIC=Error method: oh, Error)::true:false",
		"dead:failed:no such user::true:false", "discard:failed:not needed::false:true", "failed:failed:no paper::false:false",
		"last:done:4", "later:failed:busy:1m:false:false", "leaves:failed:the handler ended its goroutine::false:false",
		"no JSON:failed:its result is not JSON: json: unsupported type: func()::true:false",
		"no result:failed:its result is not JSON: panic: oh, MarshalJSON::true:false",
		"no text:failed:panic: oh, Error, in a method of the returned error client_test.badError::false:false", "panic:failed:panic: oh::false:false",
		"refused:failed:client: POST /claims/complete: 422 Unprocessable Entity::false:false", "together1:done:9",
		"together2:done:9", "together3:done:9",
	}
	eventually(t, "all jobs have ended", func() bool { return len(p.outcomes()) == len(want) })
	if got := p.outcomes(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestWorkerStops(t *testing.T) {
	t.Parallel()
	p := startPuller(t)
	began, goOn := make(chan string, 2), make(chan struct{})
	w := work(t, p, client.WorkOptions{Concurrency: 2, Grace: longWait, Handle: func(_ context.Context, j *wire.Claim) (any, error) {
		began <- j.Kind
		<-goOn
		return nil, nil
	}})
	p.enqueue("one")
	<-began
	w.stop() // with a claim under way, and a job
	p.enqueue("two")
	close(goOn)
	must(t, <-w.ended)
	if got := p.outcomes(); !slices.Equal(got, []string{"one:done:<nil>"}) {
		t.Errorf("got %q", got)
	}
	p.expire() // it may have been given to a claim that was not there any more
	jobs, err := serve(t, p, client.Options{}).Claim(t.Context(), "q", client.ClaimOptions{Max: 2})
	must(t, err)
	if len(jobs) != 1 || jobs[0].Kind != "two" {
		t.Errorf("what is left: %+v", jobs)
	}
}

// What is not done when the grace is over is given back, and not counted.
func TestWorkerGivesBack(t *testing.T) {
	t.Parallel()
	p := startPuller(t)
	began := make(chan struct{}, 1)
	w := work(t, p, client.WorkOptions{Grace: time.Millisecond, Handle: func(ctx context.Context, _ *wire.Claim) (any, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	p.enqueue("slow")
	<-began
	w.stop()
	must(t, <-w.ended)
	jobs, err := serve(t, p, client.Options{}).Claim(t.Context(), "q", client.ClaimOptions{})
	must(t, err)
	if len(jobs) != 1 || jobs[0].Attempt != 1 {
		t.Errorf("what was given back: %+v", jobs)
	}
}

// A job whose lease the daemon has given to somebody else is told to end, and the previous
// holder does not complete it.
func TestWorkerLosesJobs(t *testing.T) {
	t.Parallel()
	p := startPuller(t)
	began := make(chan string, 10)
	var lost atomic.Int32
	work(t, p, client.WorkOptions{Lease: time.Second, Handle: func(ctx context.Context, j *wire.Claim) (any, error) {
		began <- j.ID
		if lost.Load() > 0 {
			return "second", nil
		}
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), client.ErrLost) {
			lost.Add(1)
		}
		return nil, context.Cause(ctx)
	}})
	p.enqueue("x")
	<-began
	p.expire()
	eventually(t, "it was done anew", func() bool { return slices.Equal(p.outcomes(), []string{"x:done:second"}) })
	if lost.Load() != 1 {
		t.Errorf("lost %d times", lost.Load())
	}
}

// While a handler runs, the lease of its job is renewed.
func TestWorkerRenewsLeases(t *testing.T) {
	t.Parallel()
	p := &stub{wake: make(chan struct{}), held: map[string]*wire.Claim{}}
	beats := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.beats
	}
	work(t, p, client.WorkOptions{Lease: 3 * time.Second, Handle: func(context.Context, *wire.Claim) (any, error) {
		eventually(t, "the lease was renewed twice", func() bool { return beats() >= 2 })
		return nil, nil
	}})
	p.enqueue("x")
	eventually(t, "the job is done", func() bool { return slices.Equal(p.outcomes(), []string{"x:done:<nil>"}) })
}

// A daemon that is away for a while, or starts anew, ends no worker; one that refuses does.
func TestWorkerOutlivesOutages(t *testing.T) {
	t.Parallel()
	p := &stub{wake: make(chan struct{}), held: map[string]*wire.Claim{}}
	var mu sync.Mutex
	faults := map[string]int{"/api/v1/queues/q/claim": 3, "/api/v1/claims/complete": 2}
	var forbidden atomic.Bool
	p.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if forbidden.Load() {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		faults[r.URL.Path]--
		switch faults[r.URL.Path] {
		case 2:
			w.WriteHeader(http.StatusNotFound) // the queue is made by its first job
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 0:
			panic(http.ErrAbortHandler)
		default:
			return false
		}
		return true
	}
	w := work(t, p, client.WorkOptions{
		Wait:   10 * time.Millisecond,
		Handle: func(context.Context, *wire.Claim) (any, error) { return nil, nil },
	})
	p.enqueue("x")
	eventually(t, "the job is done", func() bool { return slices.Equal(p.outcomes(), []string{"x:done:<nil>"}) })
	forbidden.Store(true)
	var refused *client.Problem
	if err := <-w.ended; !errors.As(err, &refused) || refused.Status != http.StatusForbidden {
		t.Errorf("a worker whose token is revoked ends with %v", err)
	}
}

func TestWorkerOptions(t *testing.T) {
	t.Parallel()
	c := serve(t, startPuller(t), client.Options{})
	handle := func(context.Context, *wire.Claim) (any, error) { return nil, nil }
	for _, opt := range []client.WorkOptions{
		{},
		{Queue: "q"},
		{Handle: handle},
		{Queue: "q", Handle: handle, Concurrency: 1001},
		{Queue: "q", Handle: handle, Lease: time.Millisecond},
		{Queue: "q", Handle: handle, Wait: -1},
	} {
		if err := c.Work(t.Context(), opt); err == nil {
			t.Errorf("%+v is good", opt)
		}
	}
}

// A job whose lease cannot be renewed is told to end before somebody else can have it.
func TestWorkerCannotRenew(t *testing.T) {
	t.Parallel()
	p := &stub{wake: make(chan struct{}), held: map[string]*wire.Claim{}}
	p.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/claims/heartbeat" {
			return false
		}
		w.WriteHeader(http.StatusMisdirectedRequest)
		return true
	}
	causes := make(chan error, 1)
	work(t, p, client.WorkOptions{Lease: time.Second, Handle: func(ctx context.Context, _ *wire.Claim) (any, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}})
	p.enqueue("x")
	if err := <-causes; !errors.Is(err, client.ErrLost) {
		t.Errorf("it ended with %v", err)
	}
	if got := p.outcomes(); len(got) > 0 {
		t.Errorf("it told %q", got)
	}
}
