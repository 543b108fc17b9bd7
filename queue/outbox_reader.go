package queue

import (
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A reader makes deliveries from rows with few allocations: one for many deliveries, and one
// for many payloads.
type reader struct {
	core  *core
	b     *tenure
	rows  *store.Reader
	slab  []Delivery
	arena []byte
	limit int
	room  *block.Allowance
}

// reader returns a reader for the rows of a statement, about limit of them. It leaves out
// payloads for which there is no room; nil: it keeps all.
func (f *flusher) reader(stmt *sqlrun.Stmt, b *tenure, limit int, room *block.Allowance) *reader {
	r := &reader{core: f.core, b: b, rows: store.NewReader(stmt), limit: limit, room: room}
	r.rows.Kind, r.rows.Text = f.names.kind, r.text
	if room != nil {
		r.rows.Keep = r.keeps
	}
	return r
}

// keeps reports whether to keep a row's payload of n bytes: not if it does not fit, nor a large
// one of a job that was read before. mu is not held.
func (r *reader) keeps(id int64, n int) bool {
	if n >= block.Large && !r.core.opt.AtMostOnce {
		r.core.mu.Lock()
		defer r.core.mu.Unlock()
		if r.b.Seen(id) != nil {
			return false
		}
	}
	return r.room.Takes(n)
}

// text copies bytes of a row.
func (r *reader) text(b []byte) []byte {
	if len(r.arena)+len(b) > cap(r.arena) {
		r.arena = make([]byte, 0, max(16<<10, len(b)))
	}
	start := len(r.arena)
	r.arena = append(r.arena, b...)
	return r.arena[start:len(r.arena):len(r.arena)]
}

// ready reads a ready job.
func (r *reader) ready(row *sqlrun.Row) *Delivery {
	j := r.rows.Read(row)
	if len(r.slab) == cap(r.slab) {
		r.slab = make([]Delivery, 0, min(128, r.limit))
	}
	r.slab = r.slab[:len(r.slab)+1]
	d := &r.slab[len(r.slab)-1]
	d.Job, d.ID, d.Callback = jobOf(j, r.b.q.name), j.ID, j.Callback
	d.saved = progressOf(j)
	d.comesFrom(r.b)
	if j.Bare {
		d.state.Unloaded, d.state.Size = true, j.Lacks
	}
	d.Attempt, d.Crashes = 1, j.Crashes
	d.ctx.base = r.core.base
	return d
}

// delayed reads a delayed job.
func (r *reader) delayed(row *sqlrun.Row) *Delivery {
	d := r.ready(row)
	j := r.rows.Job()
	d.state.From = tableDelayed
	d.Attempt, d.Stops, d.state.RunAt = j.Attempt+1, j.Stops, j.RunAt
	if !j.Holds { // no job of its key waits for it
		d.state.Order = store.TickOf(d.state.RunAt)
	}
	return d
}

// running reads a checked out job.
func (r *reader) running(row *sqlrun.Row) *Delivery {
	d := r.ready(row)
	d.state.From, d.Attempt = tableRunning, r.rows.Job().Attempt
	return d
}

// jobOf converts a row to a Job of a queue.
func jobOf(j *store.Job, queue string) Job {
	return Job{
		Queue: queue, Kind: j.Kind, Payload: j.Payload, Binary: j.Binary, Key: j.Key, Unique: j.Unique, UniqueUntil: j.UniqueUntil, Group: j.Group,
		Priority: store.PriorityOf(j), MaxAttempts: j.MaxAttempts, Timeout: j.Timeout, Trace: j.Trace, Endpoint: j.Endpoint, Tenant: j.Tenant, Cost: j.Cost,
	}
}

// kindNames are the names of the kinds with handlers, each stored once.
type kindNames map[string]string

// kind returns the shared string of a kind.
func (names kindNames) kind(name []byte) string {
	if known, ok := names[string(name)]; ok {
		return known
	}
	return string(name)
}
