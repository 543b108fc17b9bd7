package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
)

// shortestStall is the minimum of --stall: a command's output is checked once a second.
const shortestStall = time.Second

// progressVariable names the file that a command touches to report progress.
const progressVariable = "DBCRON_PROGRESS_FILE"

// A stall watches a command for progress: it writes output, or touches a file.
type stall struct {
	limit  time.Duration
	file   string
	remove bool     // the file was created here
	grows  *os.File // the command's stdout, if that is a file; may be nil

	relayed atomic.Int64 // bytes
	held    atomic.Int32 // writes in progress: the command may be waiting for the reader
	ends    []*os.File   // ends of pipes passed to the command
	relays  sync.WaitGroup
	done    chan struct{} // closed when the command and everything it started are gone

	watch instant.Watch[progressMark]
}

// A progressMark changes with progress.
type progressMark struct {
	relayed, size, fileSize int64
	snapshots               int
	touched                 time.Time
}

// newStall returns a watch, or nil without a limit. Without a file it creates one.
func newStall(limit time.Duration, file string) (*stall, error) {
	if limit == 0 {
		return nil, nil
	}
	s := &stall{limit: limit, file: file, done: make(chan struct{})}
	if file == "" {
		made, err := os.CreateTemp("", "dbcron-progress-*")
		if err != nil {
			return nil, fmt.Errorf("a file for the command to touch: %w", err)
		}
		s.file, s.remove = made.Name(), true
		if err := made.Close(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// environ adds the file to a command's environment.
func (s *stall) environ(env []string) []string {
	if s == nil {
		return env
	}
	var all []string
	for _, pair := range env {
		if !strings.HasPrefix(pair, progressVariable+"=") { // set by an enclosing command
			all = append(all, pair)
		}
	}
	return append(all, progressVariable+"="+s.file)
}

// relay returns pipes for the command's stdout and stderr, which are copied to out and errs. If these are one file,
// there is one pipe, so that the order of output is kept.
func (s *stall) relay(out, errs io.Writer) (stdout, stderr *os.File, err error) {
	// Otherwise a write to a closed stdout would end this process instead of the command. Ignoring the signal
	// would be inherited by the command.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if stdout, err = s.pipe(out); err != nil || sameFile(out, errs) {
		return stdout, stdout, err
	}
	stderr, err = s.pipe(errs)
	return stdout, stderr, err
}

func sameFile(a, b any) bool {
	if fileOf(a) == nil || fileOf(b) == nil {
		return false
	}
	one, err := fileOf(a).Stat()
	other, err2 := fileOf(b).Stat()
	return err == nil && err2 == nil && os.SameFile(one, other)
}

func (s *stall) pipe(to io.Writer) (*os.File, error) {
	from, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, end)
	s.relays.Go(func() { s.pass(to, from) })
	return end, nil
}

// pass copies until nobody holds the other end, or nothing has come for a second after the command's end: an unrelated
// process may hold it. If the reader is gone, it closes the pipe, so that the command notices.
func (s *stall) pass(to io.Writer, from *os.File) {
	defer from.Close()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-s.done: // wakes a blocked read
			_ = from.SetReadDeadline(hostNow().Add(time.Second))
		case <-stopped:
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		select {
		case <-s.done:
			_ = from.SetReadDeadline(hostNow().Add(time.Second))
		default:
		}
		n, err := from.Read(buf)
		if n > 0 {
			s.held.Add(1)
			_, failed := to.Write(buf[:n])
			s.relayed.Add(int64(n))
			s.held.Add(-1)
			if failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// begin is called when the command has started or could not be.
func (s *stall) begin() {
	for _, end := range s.ends {
		end.Close()
	}
	s.watch.Begin(instant.Now(), s.mark(0))
}

// finish copies the command's last output, unless hurry is closed.
func (s *stall) finish(hurry <-chan struct{}) {
	close(s.done)
	passed := make(chan struct{})
	go func() { // ends when the reader does
		defer close(passed)
		s.relays.Wait()
	}()
	select {
	case <-passed:
	case <-hurry:
	}
	if s.remove {
		_ = os.Remove(s.file)
	}
}

func (s *stall) mark(snapshots int) progressMark {
	m := progressMark{relayed: s.relayed.Load(), snapshots: snapshots}
	if s.grows != nil {
		if info, err := s.grows.Stat(); err == nil {
			m.size = info.Size()
		}
	}
	if info, err := os.Stat(s.file); err == nil {
		m.fileSize, m.touched = info.Size(), info.ModTime()
	}
	return m
}

// over reports at each tick whether there was no progress for too long.
func (s *stall) over(now instant.Instant, tick time.Duration, snapshots int) bool {
	return s.watch.Over(now, tick, s.limit, s.mark(snapshots), s.held.Load() > 0)
}

// errStalled is in the error of a command without progress.
var errStalled = errors.New("no progress")

func (s *stall) err() error {
	return fmt.Errorf("%w for %s (--stall): neither output nor a touch of $%s", errStalled, plain.FormatDuration(s.limit), progressVariable)
}

// checkStall validates --stall.
func checkStall(limit time.Duration, given bool) error {
	if given && limit < shortestStall {
		return usagef("--stall %v: use 1s or more", limit)
	}
	return nil
}
