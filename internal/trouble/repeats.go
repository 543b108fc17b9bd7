package trouble

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// mostRepeats is how many different failures Repeats remembers. Further ones are logged each.
const mostRepeats = 1000

// Repeats logs failures of many things: each failure once, and then how often it came again, once in
// [Every]. It is safe for concurrent use. The zero value is not usable.
type Repeats struct {
	log   *slog.Logger
	every time.Duration // Every, but in tests

	mu  sync.Mutex
	all map[string]*repeat
}

// A repeat is a failure that was logged within the last interval.
type repeat struct {
	level slog.Level
	msg   string
	args  []any // of the last one
	again int   // how often it came since it was logged
	timer *time.Timer
}

// NewRepeats returns a Repeats that logs to log.
func NewRepeats(log *slog.Logger) *Repeats {
	return &Repeats{log: log, every: Every, all: map[string]*repeat{}}
}

// Log logs a failure with its args, unless the same one was logged within the interval: one with the same
// level and message, and with the same key except for the numbers in it.
func (r *Repeats) Log(level slog.Level, key, msg string, args ...any) {
	key = level.String() + " " + msg + " " + withoutNumbers(key)
	r.mu.Lock()
	if is := r.all[key]; is != nil {
		is.again++
		is.args = args
		r.mu.Unlock()
		return
	}
	if len(r.all) < mostRepeats {
		is := &repeat{level: level, msg: msg}
		is.timer = time.AfterFunc(r.every, func() { r.over(key, is) })
		r.all[key] = is
	}
	r.mu.Unlock()
	r.log.Log(context.Background(), level, msg, args...)
}

// withoutNumbers is a text with # for each number in it.
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

// over ends the interval of a failure. The next begins if it came again.
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

// tell logs how often a failure came again.
func (r *Repeats) tell(is *repeat, again int, args []any) {
	if again > 0 {
		r.log.Log(context.Background(), is.level, is.msg, append(args[:len(args):len(args)], "times", again)...)
	}
}

// Flush logs at once how often failures came again.
func (r *Repeats) Flush() {
	r.mu.Lock()
	all := r.all
	r.all = map[string]*repeat{}
	for _, is := range all {
		is.timer.Stop()
	}
	r.mu.Unlock()
	for _, is := range all { // nobody else changes them any more
		r.tell(is, is.again, is.args)
	}
}
