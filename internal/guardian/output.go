package guardian

import (
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
)

// output keeps the first and the last bytes that are written to it, in memory
// that does not grow with what comes in between.
type output struct {
	half int // the room for each of head and tail

	mu    sync.Mutex
	head  []byte
	tail  []byte // longer than room at times: text cuts it
	total int64
	told  int64 // total at the last news
}

func newOutput(limit int) *output { return &output{half: limit / 2} }

// room is the number of trailing bytes that text examines: slightly more than half, so that where a rune
// begins does not depend on how the bytes were split into writes.
func (o *output) room() int { return o.half + utf8.UTFMax - 1 }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	o.total += int64(n)
	first := min(o.half-len(o.head), n)
	o.head = append(o.head, p[:first]...)
	p = p[first:]
	if len(p) >= o.room() {
		o.tail = append(o.tail[:0], p[len(p)-o.room():]...)
		return n, nil
	}
	o.tail = append(o.tail, p...)
	if len(o.tail) > 2*o.room() { // rarely move bytes, so that the cost per byte does not depend on the limit
		o.tail = o.tail[:copy(o.tail, o.tail[len(o.tail)-o.room():])]
	}
	return n, nil
}

// follow sends the text once per second if it has changed, until over is closed or sending fails. While send blocks,
// snapshots are not queued: the next text contains everything.
func (o *output) follow(over <-chan struct{}, send func(text string) error) {
	tick := time.NewTicker(newsEvery)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		if text, ok := o.news(); ok && send(text) != nil {
			return
		}
	}
}

// news returns the text if something was written since the last call.
func (o *output) news() (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.total == o.told {
		return "", false
	}
	o.told = o.total
	text, _ := o.joined()
	return text, true
}

// text returns the kept text, and the number of bytes it omits.
func (o *output) text() (string, int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.joined()
}

// joined is text for callers that hold the lock. Cleaned text may be longer than the bytes, so it may
// keep fewer of them.
func (o *output) joined() (string, int64) {
	head, tail := o.head, o.tail
	whole := o.total <= int64(2*o.half)
	if whole {
		all := append(append([]byte(nil), head...), tail...)
		if s, read := clean(all, 2*o.half, true); read == len(all) {
			return s, 0
		}
		head = all // a rune may lie across the two
	}
	first, read := clean(head, o.half, false)
	if whole {
		tail = head[read:]
	} else {
		tail = tail[max(0, len(tail)-o.room()):]
		tail = tail[continuation(tail):]
	}
	last, readBack := cleanBack(tail, o.half)
	omitted := o.total - int64(read+readBack)
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", first, omitted, last), omitted
}

// clean converts b into at most room bytes of valid UTF-8 without NUL, which PostgreSQL refuses. It also
// returns how much of b it has read. Unless b is the whole text, it leaves half a rune at its end.
func clean(b []byte, room int, whole bool) (string, int) {
	out := make([]byte, 0, min(room, len(b)))
	read := 0
	for read < len(b) {
		r, size := utf8.DecodeRune(b[read:])
		if r == utf8.RuneError && !whole && !utf8.FullRune(b[read:]) {
			break
		}
		if r = visible(r); len(out)+utf8.RuneLen(r) > room {
			break
		}
		out = utf8.AppendRune(out, r)
		read += size
	}
	return string(out), read
}

// cleanBack is clean from the end of b.
func cleanBack(b []byte, room int) (string, int) {
	start := len(b)
	for used := 0; start > 0; {
		r, size := utf8.DecodeLastRune(b[:start])
		if used += utf8.RuneLen(visible(r)); used > room {
			break
		}
		start -= size
	}
	s, _ := clean(b[start:], room, true)
	return s, len(b) - start
}

func visible(r rune) rune {
	if r == 0 {
		return utf8.RuneError
	}
	return r
}

// continuation counts the bytes at the start of b that continue a rune whose start is missing.
func continuation(b []byte) int {
	n := 0
	for n < min(len(b), utf8.UTFMax-1) && !utf8.RuneStart(b[n]) {
		n++
	}
	return n
}
