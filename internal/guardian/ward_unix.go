//go:build unix

package guardian

import (
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dbcron/dbcron/internal/instant"
)

func init() {
	if len(os.Args) > 0 && os.Args[0] == argv0 {
		// The command dies with the thread that starts it: this is the main
		// thread, which ends with the process only.
		runtime.LockOSThread()
		// Not os.Exit: the hooks there are the program's (coverage, the race
		// detector with its second of sleep), and the caller waits.
		syscall.Exit(guard())
	}
}

// guard is the guardian's main.
func guard() int {
	orders, reports := pipeEnd(3), pipeEnd(4)
	if orders == nil || reports == nil {
		fmt.Fprintln(os.Stderr, argv0+" is started by dbcron, not by hand")
		return 2
	}
	closeInherited()
	becomeSubreaper()
	signals := make(chan os.Signal, 8)
	// Not signal.Ignore: the command would inherit that.
	signal.Notify(signals, unix.SIGTERM,
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)

	g := &guards{enc: gob.NewEncoder(reports), orders: receive(gob.NewDecoder(orders)), signals: signals}
	g.home, _ = os.Open(".")
	for g.next() {
	}
	return 0
}

// guards are what a guardian has beyond its command.
type guards struct {
	enc     *gob.Encoder // of reports; it sends one at a time
	orders  <-chan order
	signals <-chan os.Signal
	home    *os.File // the caller's directory; nil: unknown
}

// next waits for a command and guards it. It reports whether another may follow.
func (g *guards) next() bool {
	var first order
	for first.Spec == nil { // what comes before is of the last command
		select {
		case o, ok := <-g.orders:
			if !ok {
				return false // the caller died, or needs no more
			}
			first = o
		case s := <-g.signals:
			if s == unix.SIGTERM {
				return false
			}
		}
	}
	w := &ward{spec: *first.Spec, out: newOutput(first.Spec.MaxOutput), echo: newEcho(), stuck: make(chan Result, 1)}
	setTitle(w.spec.Name)
	w.obey(first)
	if code, err := w.start(); err != nil {
		w.drop()
		w.result = Result{Cause: NotStarted, ExitCode: code, Err: err}
	} else {
		g.follow(w)
	}
	setTitle("") // whoever looks for the command's guardian finds none that rests
	last := report{Result: &w.result, Rests: reusable && w.harmless() && g.home != nil && g.home.Chdir() == nil}
	if w.result.Err != nil {
		last.Err, w.result.Err = w.result.Err.Error(), nil
	}
	return g.enc.Encode(last) == nil && last.Rests // waits for a caller that is stopped, but not for a dead one
}

// follow guards a command that has started, and sends its output from time to time, and as it comes if its caller wants that.
func (g *guards) follow(w *ward) {
	_ = g.enc.Encode(report{Pid: w.pid})
	over := make(chan struct{})
	var telling sync.WaitGroup // beside the work, since sending may wait for the caller
	telling.Go(func() {
		w.out.follow(over, func(text string) error { return g.enc.Encode(report{Output: text}) })
	})
	telling.Go(func() {
		w.echo.send(func(text []byte, omitted int64) error { return g.enc.Encode(report{Echo: text, Omitted: omitted}) })
	})
	telling.Go(func() {
		for r := range w.stuck {
			_ = g.enc.Encode(report{Stuck: &r})
		}
	})
	w.run(g.orders, g.signals)
	close(over)
	close(w.stuck)
	w.echo.close()
	telling.Wait() // or a late report would be the next command's; the result has to wait for the caller, too
}

// pipeEnd returns the inherited pipe fd, or nil.
func pipeEnd(fd int) *os.File {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	unix.CloseOnExec(fd)
	_ = unix.SetNonblock(fd, true) // so that waiting for it blocks a goroutine, not a thread
	return os.NewFile(uintptr(fd), "pipe")
}

// closeInherited closes what the caller itself has inherited from a careless parent. Everything opened by
// Go is marked close-on-exec.
func closeInherited() {
	names, _ := os.ReadDir("/dev/fd")
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// receive delivers orders until the pipe ends.
func receive(dec *gob.Decoder) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var o order
			if dec.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// A ward is the command as seen by its guardian.
type ward struct {
	spec     spec
	out      *output
	echo     *echo
	pid      int
	eof      chan struct{} // nothing writes to out any more
	pipe     *os.File      // the reading end of the command's output
	deadline instant.Instant
	span     time.Duration // from the last extension to the deadline

	cause     Cause // why it is being ended; "": it is not
	killNow   bool
	passed    [len(passable)]int // of order.Passed, what was done
	startedAt instant.Instant
	termAt    instant.Instant // zero: has not happened, as for all of these
	exitAt    instant.Instant // of the command itself
	goneAt    instant.Instant // of all its processes
	killAt    instant.Instant // SIGKILL since then
	alone     bool            // the caller died
	survivors []int           // as last told
	stuck     chan Result     // the newest news of survivors
	result    Result
}

// reap waits for the command and for the orphans that the guardian inherits.
// It delivers the command's status, and ends when there is no child left.
func reap(pid int) <-chan syscall.WaitStatus {
	deaths := make(chan syscall.WaitStatus, 1)
	go func() {
		defer close(deaths)
		for {
			var status syscall.WaitStatus
			switch dead, err := syscall.Wait4(-1, &status, 0, nil); {
			case dead == pid:
				deaths <- status
			case errors.Is(err, unix.ECHILD):
				return
			}
		}
	}()
	return deaths
}

// run guards the command until it is gone. It gives up on what cannot be killed only if nobody waits for that any more.
func (w *ward) run(orders <-chan order, signals <-chan os.Signal) {
	deaths := reap(w.pid)
	timer := time.NewTimer(0)
	for eof := w.eof; ; {
		now := instant.Now()
		timer.Reset(w.act(now))
		if w.over(now, deaths == nil, eof == nil) {
			break
		}
		select {
		case o, ok := <-orders:
			if !ok {
				orders, w.alone = nil, true
				w.terminate(orphaned)
			}
			w.obey(o)
		case s := <-signals:
			if s == unix.SIGTERM {
				w.terminate(Stopped)
			}
		case status, ok := <-deaths:
			if ok {
				w.exited(status)
			} else {
				deaths = nil
			}
		case <-eof:
			eof = nil
		case <-timer.C:
		}
	}
	w.finish()
}

// obey follows an order. Orders may be repeated.
func (w *ward) obey(o order) {
	if o.Deadline > w.deadline {
		w.deadline, w.span = o.Deadline, o.Deadline.Sub(instant.Now())
	}
	for i, sig := range passable {
		if o.Passed[i] > w.passed[i] {
			w.passed[i] = o.Passed[i]
			if w.exitAt == 0 { // else its number may be another's
				_ = unix.Kill(w.pid, sig)
			}
		}
	}
	if o.Stop {
		w.terminate(Stopped)
	}
	if o.Kill {
		w.killNow = true
		if w.runs() {
			w.cause = Killed
		}
	}
}

// act does what is due, and returns the time until something else is.
func (w *ward) act(now instant.Instant) time.Duration {
	kill, term := w.killTime(), w.termTime()
	switch {
	case w.goneAt != 0:
		return linger
	case now >= kill:
		if w.cause == "" && w.runs() && now >= w.lapse() {
			w.cause = Deadline
		}
		if w.killAt == 0 {
			w.killAt = now
			w.result.LeftBehind = w.exitAt != 0 && w.cause == ""
		}
		found := signalTree(os.Getpid(), w.pid, unix.SIGKILL)
		if now < w.killAt.Add(giveUp) {
			return min(max(now.Sub(w.killAt)/4, 5*time.Millisecond), longSleep/2)
		}
		w.tell(survivorsOf(found, w.pid))
		return giveUp
	case w.cause == "" && w.runs() && now >= term:
		w.terminate(Deadline)
		kill = w.killTime()
	}
	next := kill
	if w.cause == "" && w.runs() {
		next = min(next, term)
	}
	if !subreaper && w.exitAt != 0 { // only polling tells whether the group is empty
		return min(next.Sub(now), max(now.Sub(w.exitAt)/8, 20*time.Millisecond), longSleep)
	}
	return min(next.Sub(now), longSleep)
}

// tell has the caller told which processes survive SIGKILL. A caller that is stopped misses all but the newest.
func (w *ward) tell(survivors []int) {
	if len(survivors) == 0 || slices.Equal(survivors, w.survivors) {
		return
	}
	w.survivors = survivors
	r := Result{Cause: cmp.Or(w.cause, Exited), ExitCode: -1, Survivors: survivors}
	r.Output, r.Omitted = w.out.text()
	select {
	case <-w.stuck: // nobody has read it yet
	default:
	}
	w.stuck <- r
}

// terminate sends SIGTERM, once. It sends SIGCONT, too, since a stopped process takes no other signal.
func (w *ward) terminate(cause Cause) {
	if w.cause != "" || !w.runs() {
		return
	}
	w.cause, w.termAt = cause, instant.Now()
	if w.pid != 0 && w.spec.Grace > 0 {
		signalTree(os.Getpid(), w.pid, unix.SIGTERM, unix.SIGCONT)
	}
}

// runs reports whether the command runs, or what it has left in the background does and has another time than the usual.
func (w *ward) runs() bool {
	return w.exitAt == 0 || w.spec.Linger > linger && w.killAt == 0 && w.goneAt == 0
}

// lapse is when SIGKILL comes because of the deadline.
func (w *ward) lapse() instant.Instant { return w.deadline.Add(-min(killLead, w.span/10)) }

func (w *ward) killTime() instant.Instant {
	t := w.lapse()
	if w.killNow {
		return 0
	}
	if w.termAt != 0 {
		t = min(t, w.termAt.Add(w.spec.Grace))
	}
	if w.exitAt != 0 {
		t = min(t, w.exitAt.Add(w.spec.Linger))
	}
	return t
}

func (w *ward) termTime() instant.Instant { return w.lapse().Add(-min(w.spec.Grace, w.span/3)) }

func (w *ward) exited(status syscall.WaitStatus) {
	w.exitAt = instant.Now()
	w.result.Took = w.exitAt.Sub(w.startedAt)
	w.result.ExitCode = status.ExitStatus()
	if status.Signaled() {
		w.result.Signal = status.Signal()
		w.result.ExitCode = 128 + int(w.result.Signal)
	}
}

// over reports whether there is nothing left to wait for: the processes are gone and the output has ended,
// except for what an unrelated process may still write.
func (w *ward) over(now instant.Instant, childless, eof bool) bool {
	if w.goneAt == 0 && childless && (subreaper || unix.Kill(-w.pid, 0) != nil) {
		w.goneAt = now
	}
	if w.goneAt != 0 {
		return eof || now >= w.goneAt.Add(linger)
	}
	return w.alone && w.killAt != 0 && now >= w.killAt.Add(giveUp)
}

// drop reads no more output.
func (w *ward) drop() {
	if w.pipe != nil {
		w.pipe.Close()
		<-w.eof
	}
}

// harmless reports whether nothing of the command is left, neither a process nor a file, and it has ended by itself.
func (w *ward) harmless() bool {
	return !w.spec.own() && w.cause == "" && !w.result.LeftBehind && (w.pid == 0 || w.goneAt != 0)
}

// finish completes the result.
func (w *ward) finish() {
	w.drop()
	r := &w.result
	r.Cause = Exited
	if w.cause != "" {
		r.Cause = w.cause
	}
	r.Output, r.Omitted = w.out.text()
	if w.exitAt == 0 {
		r.ExitCode = -1
	}
}
