package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
)

const (
	maxPending = 1 << 20                // bytes that wait for the reader
	patience   = 100 * time.Millisecond // how long one line waits for the reader; those after it do not
)

// An Outlet writes to a stream whose reader may stop, such as a pipe to a log collector. A line waits for the reader
// only while the reader keeps up. Otherwise up to 1 MiB waits, and lines that find no room are dropped and counted.
type Outlet struct {
	To io.Writer

	mu      sync.Mutex
	pending []byte
	told    chan struct{} // closed when pending has been written; nil: nothing is being written
	behind  bool          // a line has waited in vain, and the reader has not caught up since
	since   instant.Instant
	failed  error // of the last write
	dropped int64 // lines
	missing int64 // of these, lines that the stream has not been told of
	note    func(lines int64) []byte
}

// NewOutlet returns an outlet to a stream.
func NewOutlet(to io.Writer) *Outlet { return &Outlet{To: to, note: plainNote} }

func plainNote(lines int64) []byte {
	return fmt.Appendf(nil, "dbcron: %s dropped here, because nobody read them\n", plain.Plural(int(lines), "line was", "lines were"))
}

// Note sets what the stream is told in place of dropped lines.
func (o *Outlet) Note(text func(lines int64) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note = text
}

// Write takes whole lines. It never fails: what cannot be written is counted.
func (o *Outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	if len(o.pending)+len(p) > maxPending {
		o.drop(p)
		o.mu.Unlock()
		return len(p), nil
	}
	o.pending = append(o.pending, p...)
	if o.told == nil {
		o.told, o.since = make(chan struct{}), instant.Now()
		go o.write()
	}
	told, behind := o.told, o.behind
	o.mu.Unlock()
	if behind {
		return len(p), nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
		o.mu.Lock()
		o.behind = o.told != nil
		o.mu.Unlock()
	}
	return len(p), nil
}

func (o *Outlet) drop(p []byte) {
	n := int64(bytes.Count(p, []byte("\n")))
	o.dropped += n
	o.missing += n
}

// write writes what is pending until nothing is.
func (o *Outlet) write() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending) > 0 || o.missing > 0 && o.failed == nil {
		lines, missing := o.pending, o.missing
		text := lines
		if o.pending, o.missing = nil, 0; missing > 0 {
			text = append(text[:len(text):len(text)], o.note(missing)...)
		}
		o.since = instant.Now()
		o.mu.Unlock()
		_, err := o.To.Write(text)
		o.mu.Lock()
		if o.failed = err; err != nil { // such as EPIPE: the reader is gone, and may come back
			o.missing += missing
			o.drop(lines)
		}
	}
	o.behind = false
	close(o.told)
	o.told = nil
}

// Flush waits until everything is written, or ctx ends. It does not wait for a reader that has stopped.
func (o *Outlet) Flush(ctx context.Context) {
	o.mu.Lock()
	told, behind := o.told, o.behind
	o.mu.Unlock()
	if told == nil || behind {
		return
	}
	select {
	case <-told:
	case <-ctx.Done():
	}
}

// Dropped returns the number of lines that were dropped.
func (o *Outlet) Dropped() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

// Problem says why lines do not reach the reader now, or returns "".
func (o *Outlet) Problem() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost := "none is dropped yet"
	if o.dropped > 0 {
		lost = plain.Plural(int(o.dropped), "line was", "lines were") + " dropped"
	}
	switch {
	case o.behind:
		return fmt.Sprintf("nobody has read its log for %s; %s", plain.Span(instant.Now().Sub(o.since)), lost)
	case o.failed != nil:
		return fmt.Sprintf("its log cannot be written: %v; %s", o.failed, lost)
	}
	return ""
}
