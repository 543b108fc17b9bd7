package trouble

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
)

// A failing is what fails in this process, and since when.
type failing struct {
	text        string
	began, last instant.Instant
	times       int
}

var lasting = struct {
	sync.Mutex
	all map[*Trouble]failing
}{all: map[*Trouble]failing{}}

// over is how long ago a failure was, if nobody tries any more.
const over = time.Minute

func remember(t *Trouble, at instant.Instant, err error) {
	lasting.Lock()
	defer lasting.Unlock()
	for other, f := range lasting.all {
		if at.Sub(f.last) > over {
			delete(lasting.all, other)
		}
	}
	lasting.all[t] = failing{t.what + ": " + err.Error(), t.began, at, t.failed}
}

func forget(t *Trouble) {
	lasting.Lock()
	defer lasting.Unlock()
	delete(lasting.all, t)
}

// Lasting says what has failed in this process several times in a row, and still does, or returns "". The oldest comes first.
func Lasting() string {
	lasting.Lock()
	defer lasting.Unlock()
	now := instant.Now()
	var all []failing
	for _, f := range lasting.all {
		if f.times > 2 && now.Sub(f.last) <= over {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b failing) int {
		if d := a.began.Sub(b.began); d != 0 {
			return int(max(-1, min(1, d)))
		}
		return strings.Compare(a.text, b.text)
	})
	var parts []string
	for _, f := range all[:min(len(all), 3)] {
		parts = append(parts, fmt.Sprintf("%s (fails for %s)", plain.Cut(f.text, 250), plain.Span(now.Sub(f.began))))
	}
	return strings.Join(parts, "; ")
}
