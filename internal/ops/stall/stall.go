// Package stall watches commands for progress: they write output, or touch a file.
package stall

import (
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

// Shortest is the minimum of --stall: a command's output is checked once a second.
const Shortest = time.Second

// progressVariable names the file that a command touches to report progress.
const progressVariable = "DBCRON_PROGRESS_FILE"

// A Stall watches a command for progress: it writes output, or touches a file.
type Stall struct {
	limit  time.Duration
	file   string
	remove bool     // the file was created here
	Grows  *os.File // the command's stdout, if that is a file; may be nil

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

// New returns a watch, or nil without a limit. Without a file it creates one.
func New(limit time.Duration, file string) (*Stall, error) {
	if limit == 0 {
		return nil, nil
	}
	s := &Stall{limit: limit, file: file, done: make(chan struct{})}
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

// Environ adds the file to a command's environment.
func (s *Stall) Environ(env []string) []string {
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

// Relay returns pipes for the command's stdout and stderr, which are copied to out and errs. If these are one file,
// there is one pipe, so that the order of output is kept.
func (s *Stall) Relay(out, errs io.Writer) (stdout, stderr *os.File, err error) {
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
	x, isFile := a.(*os.File)
	y, too := b.(*os.File)
	if !isFile || !too {
		return false
	}
	one, err := x.Stat()
	other, err2 := y.Stat()
	return err == nil && err2 == nil && os.SameFile(one, other)
}

func (s *Stall) pipe(to io.Writer) (*os.File, error) {
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
func (s *Stall) pass(to io.Writer, from *os.File) {
	defer from.Close()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-s.done: // wakes a blocked read
			_ = from.SetReadDeadline(soon())
		case <-stopped:
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		select {
		case <-s.done:
			_ = from.SetReadDeadline(soon())
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

// soon is a deadline of this host.
func soon() time.Time { return time.Now().Add(time.Second) } //nolint:forbidigo // never stored

// Begin is called when the command has started or could not be.
func (s *Stall) Begin() {
	for _, end := range s.ends {
		end.Close()
	}
	s.watch.Begin(instant.Now(), s.mark(0))
}

// Finish copies the command's last output, unless hurry is closed.
func (s *Stall) Finish(hurry <-chan struct{}) {
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

func (s *Stall) mark(snapshots int) progressMark {
	m := progressMark{relayed: s.relayed.Load(), snapshots: snapshots}
	if s.Grows != nil {
		if info, err := s.Grows.Stat(); err == nil {
			m.size = info.Size()
		}
	}
	if info, err := os.Stat(s.file); err == nil {
		m.fileSize, m.touched = info.Size(), info.ModTime()
	}
	return m
}

// Over reports at each tick whether there was no progress for too long.
func (s *Stall) Over(now instant.Instant, tick time.Duration, snapshots int) bool {
	return s.watch.Over(now, tick, s.limit, s.mark(snapshots), s.held.Load() > 0)
}

// Err is the error of a command that was ended.
func (s *Stall) Err() error {
	return fmt.Errorf("no progress for %s (--stall): neither output nor a touch of $%s", plain.FormatDuration(s.limit), progressVariable)
}
