package trouble

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// maxRepeats is the number of different failures that Repeats remembers. It logs all others
// each time.
const maxRepeats = 1000

// Repeats logs the failures of many operations: each failure once, and then, once in [Every],
// how often it was repeated. It is safe for concurrent use. The zero value is not usable.
type Repeats struct {
	log   *slog.Logger
	every time.Duration // Every, except in tests

	mu  sync.Mutex
	all map[string]*repeat
}

// A repeat is a failure that was logged within the last interval.
type repeat struct {
	level slog.Level
	msg   string
	args  []any // arguments of the last one
	again int   // repetitions since it was logged
	timer *time.Timer
}

// NewRepeats returns a Repeats that logs to log.
func NewRepeats(log *slog.Logger) *Repeats {
	return &Repeats{log: log, every: Every, all: map[string]*repeat{}}
}

// Log logs a failure with its args, unless the same failure was logged within the interval.
// Failures are the same if they have the same level and message, and keys that differ only in
// numbers.
func (r *Repeats) Log(level slog.Level, key, msg string, args ...any) {
	key = level.String() + " " + msg + " " + withoutNumbers(key)
	r.mu.Lock()
	if is := r.all[key]; is != nil {
		is.again++
		is.args = args
		r.mu.Unlock()
		return
	}
	if len(r.all) < maxRepeats {
		is := &repeat{level: level, msg: msg}
		is.timer = time.AfterFunc(r.every, func() { r.over(key, is) })
		r.all[key] = is
	}
	r.mu.Unlock()
	r.log.Log(context.Background(), level, msg, args...)
}

// withoutNumbers replaces each number in a text by #.
func withoutNumbers(text string) string {
	var b strings.Builder
	in := false
	for _, c := range text {
		is := c >= '0' && c <= '9'
		switch {
		case !is:
			b.WriteRune(c)
		case !in:
			b.WriteByte('#')
		}
		in = is
	}
	return b.String()
}

// over ends the interval of a failure, and begins the next one if the failure was repeated.
func (r *Repeats) over(key string, is *repeat) {
	r.mu.Lock()
	if r.all[key] != is {
		r.mu.Unlock()
		return
	}
	again, args := is.again, is.args
	if is.again, is.args = 0, nil; again > 0 {
		is.timer.Reset(r.every)
	} else {
		delete(r.all, key)
	}
	r.mu.Unlock()
	r.tell(is, again, args)
}

// tell logs how often a failure was repeated.
func (r *Repeats) tell(is *repeat, again int, args []any) {
	if again > 0 {
		r.log.Log(context.Background(), is.level, is.msg, append(args[:len(args):len(args)], "times", again)...)
	}
}

// Flush immediately logs the repetitions of all failures.
func (r *Repeats) Flush() {
	r.mu.Lock()
	all := r.all
	r.all = map[string]*repeat{}
	for _, is := range all {
		is.timer.Stop()
	}
	r.mu.Unlock()
	for _, is := range all { // no longer shared
		r.tell(is, is.again, is.args)
	}
}
