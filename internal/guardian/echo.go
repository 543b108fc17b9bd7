package guardian

import (
	"bytes"
	"fmt"
	"sync"
)

const (
	maxEcho     = 256 << 10 // bytes that wait for the caller; a command never does
	maxEchoLine = 8 << 10   // bytes
)

// echo holds what the command has written and the caller has not been sent yet. What finds no room is left out, and counted: whoever
// reads the log slowly must not hold up the command. It is independent of what Result.Output keeps.
type echo struct {
	ready chan struct{}

	mu      sync.Mutex
	pending []byte
	omitted int64 // bytes, behind pending
	closed  bool
}

func newEcho() *echo { return &echo{ready: make(chan struct{}, 1)} }

// Write never fails.
func (e *echo) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := min(len(p), maxEcho-len(e.pending))
	if e.omitted > 0 {
		kept = 0
	}
	e.pending = append(e.pending, p[:kept]...)
	e.omitted += int64(len(p) - kept)
	e.tell()
	return len(p), nil
}

// close ends send when all has been sent.
func (e *echo) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.tell()
}

func (e *echo) tell() {
	select {
	case e.ready <- struct{}{}:
	default:
	}
}

// send sends what is written, until close, or until sending fails.
func (e *echo) send(send func(text []byte, omitted int64) error) {
	for range e.ready {
		e.mu.Lock()
		text, omitted, closed := e.pending, e.omitted, e.closed
		e.pending, e.omitted = nil, 0
		e.mu.Unlock()
		if len(text) > 0 && send(text, omitted) != nil || closed {
			return
		}
	}
}

// lines splits what it is given into lines, and calls each with them.
type lines struct {
	each func(line string)
	part []byte // of a line that has not ended
}

func (l *lines) add(text []byte, omitted int64) {
	for len(text) > 0 {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		room := maxEchoLine - len(l.part)
		if len(line) > room { // a long line is several
			line, rest, whole = text[:room], text[room:], true
		}
		l.part, text = append(l.part, line...), rest
		if whole {
			l.end()
		}
	}
	if omitted > 0 {
		l.end()
		l.each(fmt.Sprintf("[… %d bytes left out …]", omitted))
	}
}

// end calls each with a line that is not empty, in valid UTF-8 without NUL.
func (l *lines) end() {
	part := bytes.TrimSuffix(l.part, []byte("\r"))
	if len(part) > 0 {
		text, _ := clean(part, 3*len(part), true)
		l.each(text)
	}
	l.part = l.part[:0]
}
