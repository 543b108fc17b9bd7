package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
)

// maxReports is how many outcomes a daemon remembers, about 100 bytes each.
const maxReports = 20_000

// reports are the outcomes that clients have reported here lately. A client whose answer was lost reports the same once more, and is told
// the same: that its job is done, and not that somebody else has ended it.
type reports struct {
	of   map[secret]*report
	ring []secret // the oldest is at next
	next int
}

// A report is an outcome that was reported.
type report struct {
	said [sha256.Size]byte
	over chan struct{} // closed when err is known
	err  error
}

// saying returns what tells an outcome from others.
func saying(what string, claim any) (said [sha256.Size]byte) {
	text, err := json.Marshal(claim)
	if err != nil { // it was decoded from JSON
		return said
	}
	return sha256.Sum256(append([]byte(what), text...))
}

// begin records that an outcome is being written. It returns an earlier report of the same, to wait for instead.
func (r *reports) begin(c *claimed) (mine, same *report) {
	if c.said == ([sha256.Size]byte{}) {
		return nil, nil
	}
	if r.of == nil {
		r.of = map[secret]*report{}
	}
	if had := r.of[c.key]; had != nil {
		if had.said == c.said {
			return nil, had
		}
		return nil, nil
	}
	mine = &report{said: c.said, over: make(chan struct{})}
	if r.of[c.key] = mine; len(r.ring) < maxReports {
		r.ring = append(r.ring, c.key)
		return mine, nil
	}
	delete(r.of, r.ring[r.next])
	r.ring[r.next] = c.key
	r.next = (r.next + 1) % maxReports
	return mine, nil
}

// end says what has become of a report. It stays known if the outcome was written.
func (r *reports) end(c *claimed, mine *report, err error) {
	if mine.err = err; err != nil && r.of[c.key] == mine {
		delete(r.of, c.key) // its place in the ring stays until it comes round
	}
	close(mine.over)
}

// wait returns what has become of a report.
func (r *report) wait(ctx context.Context) error {
	select {
	case <-r.over:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
