//go:build unix

package guardian

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// A Process is a command under guard.
type Process struct {
	*keeper
	grace   time.Duration
	wake    chan struct{} // next has changed
	ended   chan struct{} // the result is known, or never will be
	done    chan struct{}
	stuck   chan struct{} // closed when SIGKILL is known to have left some
	helpers sync.WaitGroup
	unsent  error  // why an order was not sent whole, once the helpers have ended
	result  Result // once done is closed

	mu               sync.Mutex
	next             order
	group            int // 0: not yet known
	stopAt, killedAt instant.Instant
	forced           Cause // why the caller did the guardian's work
	output           string
	snapshots        int    // number of output snapshots received
	left             Result // while it is stuck

	lines *lines // nil: nobody wants them
}

// Start runs the command under a guardian. It returns as soon as the guardian is started. Errors of the
// command itself, including a User who is unknown or whom the caller may not name, are in the Result.
// Start returns ErrPast if the deadline has passed.
//
// A Process need not be closed. It holds nothing once Done is closed.
func Start(c Command, deadline instant.Instant) (*Process, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	credential, userErr := credentialOf(c.User) // may take long if a server knows the users
	if instant.Now() >= deadline {
		return nil, ErrPast
	}
	if userErr != nil {
		return ended(Result{Cause: NotStarted, ExitCode: 126, Err: userErr}), nil
	}
	if run := virtual.Load(); run != nil {
		return ended((*run)(c)), nil
	}
	k, err := hire(c)
	if err != nil {
		return nil, err
	}
	p := &Process{
		keeper: k,
		grace:  c.Grace,
		wake:   make(chan struct{}, 1),
		ended:  make(chan struct{}),
		done:   make(chan struct{}),
		stuck:  make(chan struct{}),
		next:   order{Deadline: deadline},
	}
	if c.Line != nil {
		p.lines = &lines{each: c.Line}
	}
	p.helpers.Go(func() { p.unsent = p.send(newSpec(c, credential)) })
	p.helpers.Go(p.watch)
	go p.listen()
	return p, nil
}

// ended returns a Process that has ended already.
func ended(r Result) *Process {
	p := &Process{done: make(chan struct{}), stuck: make(chan struct{}), result: r}
	close(p.done)
	return p
}

func newSpec(c Command, credential *syscall.Credential) *spec {
	return &spec{
		Name: c.Name, Argv: c.Argv, Env: c.Env, Dir: c.Dir, Home: c.Home, Input: c.Input,
		User: c.User, Credential: credential,
		Grace: c.Grace, Linger: c.Linger, MaxOutput: c.MaxOutput, Echo: c.Line != nil,
		OwnIn: c.Stdin != nil, OwnOut: c.Stdout != nil, OwnErr: c.Stderr != nil,
	}
}

// Extend moves the deadline to a later instant; an earlier one has no effect. It never blocks.
func (p *Process) Extend(deadline instant.Instant) {
	p.order(func() { p.next.Deadline = max(p.next.Deadline, deadline) })
}

// Stop sends SIGTERM to the command, and SIGKILL after its grace.
func (p *Process) Stop() {
	p.order(func() { p.next.Stop, p.stopAt = true, cmp.Or(p.stopAt, instant.Now()) })
}

// Kill sends SIGKILL to the command.
func (p *Process) Kill() {
	p.order(func() { p.next.Kill, p.killedAt = true, cmp.Or(p.killedAt, instant.Now()) })
}

// Pass sends SIGUSR1 or SIGUSR2 to the command, and no other signal. Several that come at once may reach it as one, as signals do.
func (p *Process) Pass(sig os.Signal) {
	for i, s := range passable {
		if sig == s {
			p.order(func() { p.next.Passed[i]++ })
		}
	}
}

// Output returns the newest snapshot of a running command's output, in the form of Result.Output, and
// the number of snapshots so far, which tells whether the text has changed. The first snapshot comes a
// second after the start, and another after each second with new output. A command that is silent or
// ends sooner has none, and the text is empty. Once the command is done, only the Result has all of its
// output. If the guardian was Lost, the Result has none, and the last snapshot is all there is.
//
// Output is cheap and never blocks.
func (p *Process) Output() (text string, snapshots int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output, p.snapshots
}

// Done returns a channel that is closed when the command and everything it started are gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for Done and returns the command's result. If processes turn out to survive SIGKILL, it returns
// at once, with what is known by then: see Survivors, and wait for Done.
func (p *Process) Wait() Result {
	select {
	case <-p.done:
	case <-p.stuck:
	}
	if pids := p.Survivors(); len(pids) > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.left
	}
	<-p.done
	return p.result
}

// Survivors returns the processes of the command that SIGKILL does not end, as last seen. There are none once Done is closed.
func (p *Process) Survivors() []int {
	select {
	case <-p.done:
		return nil
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left.Survivors
}

// leaves records what survives.
func (p *Process) leaves(r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left.Survivors) == 0 {
		close(p.stuck)
	}
	r.Err = fmt.Errorf("%w: %s", ErrSurvivors, strings.Trim(fmt.Sprint(r.Survivors), "[]"))
	p.left, p.snapshots = r, p.snapshots+1
}

func (p *Process) order(change func()) {
	p.mu.Lock()
	change()
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// send forwards orders. Only this goroutine blocks if the guardian does not read.
func (p *Process) send(first *spec) error {
	for spec := first; ; spec = nil {
		p.mu.Lock()
		o := p.next
		p.mu.Unlock()
		o.Spec = spec
		if err := p.enc.Encode(o); err != nil {
			return err // the guardian is gone, or listen has given up waiting for it
		}
		select {
		case <-p.wake:
		case <-p.ended:
			return nil
		}
	}
}

// watch does the guardian's work if the guardian does not, for instance because it is stopped. It never
// acts on a guardian that does its work in time.
func (p *Process) watch() {
	const patience = giveUp + 5*time.Second
	var noticed instant.Instant // when the delay was noticed: a result may be waiting for a caller that was stopped
	for {
		now := instant.Now()
		p.mu.Lock()
		limit, cause := p.limit()
		late, group := now.Sub(limit), p.group
		if late >= 0 {
			p.forced = cause
		}
		p.mu.Unlock()
		if late >= 0 {
			_ = p.process.Signal(syscall.SIGCONT)
			signalTree(p.process.Pid, group, syscall.SIGKILL)
		}
		switch {
		case late < 0 || len(p.Survivors()) > 0: // which no other guardian could kill
			noticed = 0
		case noticed == 0:
			noticed = now
		case now.Sub(noticed) >= patience:
			_ = p.process.Kill()
		}
		timer := time.NewTimer(min(longSleep, max(-late, longSleep/10)))
		select {
		case <-timer.C:
		case <-p.ended:
			timer.Stop()
			return
		}
	}
}

// limit returns when the command must be gone, and why.
func (p *Process) limit() (instant.Instant, Cause) {
	limit, cause := p.next.Deadline, Deadline
	if p.stopAt != 0 {
		if t := p.stopAt.Add(p.grace + time.Second); t < limit {
			limit, cause = t, Stopped
		}
	}
	if p.killedAt != 0 {
		if t := p.killedAt.Add(time.Second); t < limit {
			limit, cause = t, Killed
		}
	}
	return limit, cause
}

// listen waits for the result, cleans up, and publishes the result.
func (p *Process) listen() {
	defer close(p.done)
	result, rests, err := p.read()
	if p.lines != nil {
		p.lines.end()
	}
	close(p.ended)
	_ = p.orders.SetWriteDeadline(time.Now().Add(time.Second)) //nolint:forbidigo // a duration: of a guardian that reads no more
	p.helpers.Wait()
	if rests && p.unsent == nil && p.forced == "" {
		_ = p.orders.SetWriteDeadline(time.Time{})
		p.result = result
		p.rest()
		return
	}
	if err != nil {
		p.sweep()
	}
	state, waitErr := p.end()
	switch {
	case err == nil:
		p.result = result
	case waitErr != nil:
		p.result = Result{Cause: Lost, ExitCode: -1, Err: errors.Join(ErrLost, waitErr)}
	default:
		p.result = Result{Cause: Lost, ExitCode: -1, Err: lostError(state)}
	}
	if p.forced != "" && result.Cause == Exited && result.Signal == syscall.SIGKILL {
		p.result.Cause = p.forced
	}
}

// read processes the guardian's reports. It returns the result, and whether the guardian waits for another command, or an
// error if the guardian dies without a result.
func (p *Process) read() (result Result, rests bool, err error) {
	for {
		var r report
		if err := p.dec.Decode(&r); err != nil {
			return Result{}, false, err
		}
		switch {
		case len(r.Echo) > 0:
			p.lines.add(r.Echo, r.Omitted)
			continue
		case r.Stuck != nil:
			p.leaves(*r.Stuck)
			continue
		case r.Result == nil:
			p.note(r)
			continue
		}
		switch r.Err {
		case "":
		case ErrPast.Error():
			r.Result.Err = ErrPast
		default:
			r.Result.Err = errors.New(r.Err)
		}
		return *r.Result, r.Rests, nil
	}
}

// note records what is known before the result.
func (p *Process) note(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Pid != 0 {
		p.group = r.Pid
		return
	}
	p.output, p.snapshots = r.Output, p.snapshots+1
}

// sweep kills what a dead guardian has left. The guardian is not reaped yet, so its process id, which is
// that of the session, is not reused.
func (p *Process) sweep() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var before []int
	for looks := 1; ; looks++ { // a process that forks right now may escape the first look
		pids := survivorsOf(signalTree(p.process.Pid, p.group, syscall.SIGKILL), 0)
		switch {
		case len(pids) == 0 || !subreaper:
			return
		case looks == 50:
			tick.Reset(longSleep)
			fallthrough
		case looks > 50 && !slices.Equal(pids, before):
			p.leaves(Result{Cause: Lost, ExitCode: -1, Survivors: pids})
			before = pids
		}
		<-tick.C
	}
}
