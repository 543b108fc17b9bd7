package queue

import (
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A reader makes deliveries of rows, with as few allocations as can be: one for
// many deliveries, and one for many payloads.
type reader struct {
	w     *Worker
	b     *block
	slab  []Delivery
	arena []byte
	limit int
	room  *allowance // nil: any payload is kept
}

func (w *Worker) reader(b *block, limit int, room *allowance) *reader {
	return &reader{w: w, b: b, limit: limit, room: room}
}

// keeps tells whether to keep the payload of a row, of so many bytes: not if it does not
// fit, nor a large one of a job that was read before. mu is not held.
func (r *reader) keeps(id int64, n int) bool {
	if r.room == nil {
		return true
	}
	if n >= large && !r.w.opt.AtMostOnce {
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		if _, seen := r.b.seen[id]; seen {
			return false
		}
	}
	return r.room.takes(n)
}

// text keeps bytes of a row.
func (r *reader) text(b []byte) []byte {
	if len(r.arena)+len(b) > cap(r.arena) {
		r.arena = make([]byte, 0, max(16<<10, len(b)))
	}
	start := len(r.arena)
	r.arena = append(r.arena, b...)
	return r.arena[start:len(r.arena):len(r.arena)]
}

// body reads what all tables have: id, priority, kind, job_key, payload,
// payload_bin, max_attempts, timeout, trace, unique_key, group_id, endpoint. With the
// payload goes a snapshot of some bytes.
func (r *reader) body(row *dialect.Row, snapshot int) *Delivery {
	if len(r.slab) == cap(r.slab) {
		r.slab = make([]Delivery, 0, min(128, r.limit))
	}
	r.slab = r.slab[:len(r.slab)+1]
	d := &r.slab[len(r.slab)-1]
	d.b = r.b
	d.ID, d.Priority = row.Int(0), int(row.Int(1))
	d.Queue, d.Kind = r.b.q.name, r.w.kind(row.Bytes(2))
	if !row.Null(3) {
		d.Key = string(row.Bytes(3))
	}
	words := row.Bytes(4)
	if d.Binary = !row.Null(5); d.Binary {
		words = row.Bytes(5)
	}
	if n := len(words) + snapshot; r.keeps(d.ID, n) {
		d.Payload = r.text(words)
	} else {
		d.bare, d.lacks = true, n
	}
	d.MaxAttempts = int(row.Int(6))
	d.Timeout = time.Duration(row.Int(7)) * time.Microsecond
	if !row.Null(8) {
		d.Trace = string(row.Bytes(8))
	}
	if !row.Null(9) {
		d.Unique = string(row.Bytes(9))
	}
	if group := row.Int(10); group < 0 {
		d.Callback = -group
	} else {
		d.Group = group
	}
	if !row.Null(11) {
		d.Endpoint = string(row.Bytes(11))
	}
	if d.Priority < Urgent || d.Priority > Idle { // written by hand
		d.Priority = Normal
	}
	d.Attempt, d.order = 1, d.ID
	d.ctx.base = r.w.base
	return d
}

// ready reads a ready job.
func (r *reader) ready(row *dialect.Row) *Delivery { return r.body(row, 0) }

// delayed reads a job with attempt, crashes, run_at, hold_key and progress after its
// body.
func (r *reader) delayed(row *dialect.Row) *Delivery {
	d := r.body(row, len(row.Bytes(store.BodyEnd+4)))
	d.from = tableDelayed
	d.Attempt, d.Crashes, d.runAt, d.holding = int(row.Int(store.BodyEnd))+1, int(row.Int(store.BodyEnd+1)), row.Int(store.BodyEnd+2),
		!row.Null(store.BodyEnd+3)
	if !d.bare {
		d.saved = readProgress(row, store.BodyEnd+4)
	}
	if !d.holding {
		d.order = store.TickOf(d.runAt)
	}
	return d
}

// kind returns the text of a kind, the same one each time.
func (w *Worker) kind(name []byte) string {
	if known, ok := w.kinds[string(name)]; ok {
		return known
	}
	return string(name)
}
