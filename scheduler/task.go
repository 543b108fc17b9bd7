package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"runtime/debug"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
)

// errUnfinished means that a task was told to end and did not.
var errUnfinished = errors.New("it was told to stop, and had not returned when its grace was over; it may still be running")

// A task is work inside this process: a request, a statement or a function. Its context tells it to
// end; it cannot be forced to.
type task struct {
	out    *guardian.Output
	grace  time.Duration
	cancel context.CancelCauseFunc
	done   chan struct{}
	ended  chan struct{} // closed when its grace is over
	giveUp func()        // closes ended
	result guardian.Result

	mu       sync.Mutex
	deadline instant.Instant
	cause    guardian.Cause // why it was told to end; "": not told
	timer    *time.Timer
}

// taskWatch bounds a timer's sleep, because timers do not run while the host is suspended.
const taskWatch = time.Second

// deadlineGrace is the time for a task to return at its deadline. The deadline is a tenth of a lease,
// at least 300ms, before the lease's end.
const deadlineGrace = 200 * time.Millisecond

// start runs f until it returns. The deadline ends its context. If it is over before f begins, because this
// process was paused, f is not called, and the result's error is guardian.ErrPast.
func start(deadline instant.Instant, grace time.Duration, maxOutput int,
	f func(ctx context.Context, out *guardian.Output) guardian.Result,
) *task {
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &task{
		out: guardian.NewOutput(maxOutput), grace: grace, cancel: cancel,
		done: make(chan struct{}), ended: make(chan struct{}), deadline: deadline,
	}
	t.giveUp = sync.OnceFunc(func() { close(t.ended) })
	begun := instant.Now() // each look at this clock is a system call
	t.mu.Lock()
	t.timer = time.AfterFunc(t.sleep(begun), t.watch)
	t.mu.Unlock()
	go protect(t.out, func() guardian.Result {
		if !t.inTime() {
			return guardian.Result{Cause: guardian.NotStarted, ExitCode: -1, Err: guardian.ErrPast}
		}
		return f(ctx, t.out)
	}, func(r guardian.Result) {
		r.Took = instant.Now().Sub(begun)
		if r.Output == "" {
			r.Output = t.out.Text()
		}
		t.finish(r)
	})
	return t
}

// protect turns a panic, or the end of the goroutine, into a failure.
func protect(out io.Writer, f func() guardian.Result, done func(guardian.Result)) {
	r := guardian.Result{Cause: guardian.Exited, ExitCode: -1, Err: errors.New("its goroutine was ended")}
	defer func() {
		if p := recover(); p != nil {
			r.Err = barrier.Panic(p)
			_, _ = fmt.Fprintf(out, "\n%v\n\n%s", r.Err, debug.Stack())
		}
		done(r)
	}()
	r = f()
}

// finish publishes the result.
func (t *task) finish(r guardian.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
	if t.cause != "" && r.Err != nil && r.Cause != guardian.NotStarted {
		r.Cause = t.cause
	}
	t.result = r
	t.cancel(nil)
	close(t.done)
}

// inTime reports whether the task may begin.
func (t *task) inTime() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return instant.Now() < t.deadline
}

func (t *task) sleep(now instant.Instant) time.Duration {
	return max(0, min(taskWatch, t.deadline.Sub(now)))
}

// watch ends the task at its deadline.
func (t *task) watch() {
	t.mu.Lock()
	now := instant.Now()
	late := now >= t.deadline
	if !late {
		t.timer.Reset(t.sleep(now))
	}
	t.mu.Unlock()
	if late {
		t.end(guardian.Deadline, deadlineGrace)
	}
}

// end tells the task to end. The first cause wins, and so does the shortest grace.
func (t *task) end(cause guardian.Cause, grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == "" {
		t.cause = cause
		t.timer.Stop()
		t.cancel(fmt.Errorf("the run is ended: %s", cause))
	}
	time.AfterFunc(grace, t.giveUp)
}

// Extend moves the deadline to a later instant.
func (t *task) Extend(deadline instant.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deadline = max(t.deadline, deadline)
}

// Stop tells the task to end.
func (t *task) Stop() { t.end(guardian.Stopped, t.grace) }

// Kill is Stop with a grace of at most a second.
func (t *task) Kill() { t.end(guardian.Killed, min(t.grace, time.Second)) }

// Output returns the newest output, and its length as the snapshot's number.
func (t *task) Output() (text string, snapshot int) { return t.out.Snapshot() }

// Done returns a channel that is closed when the task has returned.
func (t *task) Done() <-chan struct{} { return t.done }

// Survivors returns nothing: a task has no processes.
func (t *task) Survivors() []int { return nil }

// Wait waits until the task has returned or its grace is over.
func (t *task) Wait() guardian.Result {
	select {
	case <-t.done:
		return t.result
	case <-t.ended:
	}
	select {
	case <-t.done:
		return t.result
	default:
		t.mu.Lock()
		defer t.mu.Unlock()
		return guardian.Result{Cause: t.cause, ExitCode: -1, Output: t.out.Text(), Err: errUnfinished}
	}
}

// homeOf returns the environment of a user at login; nil: there is no such user, or none is named.
func homeOf(name string) map[string]string {
	if name == "" {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err != nil {
		return nil // the guardian reports the missing user
	}
	return map[string]string{"HOME": u.HomeDir, "LOGNAME": u.Username, "USER": u.Username}
}
