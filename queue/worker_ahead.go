package queue

import (
	"math"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Reading ahead. A worker reads jobs before it has a slot for them, up to Batch of each block,
// plus jobs that wait for others of their keys or for limits. ReadAhead bounds their payloads
// across all blocks. A job whose payload does not fit is kept without it: it is bare. When its
// turn comes, the block's flusher reads its payload, and those of the next jobs that fit. So
// lack of memory never blocks a job: it only costs another read.
//
// Jobs that have ended and are not written yet count, too. Running jobs do not: the number of
// slots bounds those.
//
// Jobs that wait for others take up at most half of the room, so that jobs that may start have
// the rest. A block with jobs to start reads no more while the room is half full, and fewer
// rows at once when they are large.
//
// A worker that removes jobs before they run has no rows from which to read payloads again. It
// keeps all payloads, and reads fewer jobs at once.

// defaultReadAhead is the default of ReadAhead.
const defaultReadAhead = 64 << 20

// large is the size from which it is worth some work to avoid keeping a payload.
const large = 4 << 10

// An allowance is the size of payloads that a round may keep.
type allowance struct {
	left int
	rows int // rows that were read, and the size of their payloads
	size int
}

// takes reports whether a payload may be kept.
func (a *allowance) takes(n int) bool {
	a.rows, a.size = a.rows+1, a.size+n
	if n > a.left {
		return false
	}
	a.left -= n
	return true
}

// allow returns what a round may read: the flushers share the available room.
func (w *Worker) allow() allowance {
	if w.opt.AtMostOnce {
		return allowance{left: math.MaxInt}
	}
	return allowance{left: max(0, w.opt.ReadAhead-w.held) / max(1, w.opt.Connections)}
}

// rowsAtOnce returns how many rows of a block to read: as many as there is room for, if they
// are as large as previous ones. It is not much less than a batch, since a row without its
// payload is small, and others that can start may follow.
func (b *block) rowsAtOnce() int {
	w := b.q.w
	if b.average == 0 {
		return b.atOnce()
	}
	room := max(0, w.opt.ReadAhead-w.held) / max(1, w.opt.Connections)
	return min(b.atOnce(), max(1, b.atOnce()/10, room/b.average))
}

// sized records the size of the rows that a round has read.
func (b *block) sized(a allowance) {
	if a.rows > 0 {
		b.average = (b.average + a.size/a.rows + 1) / 2
	}
}

// weigh counts n bytes for a job that waits to begin, or for its end to be written. mu is held.
func (b *block) weigh(d *Delivery, n int) {
	if !b.gone {
		b.held += n - d.held
		b.q.w.held += n - d.held
	}
	d.held = n
}

// lighten stops counting the payloads of a block that is gone. mu is held.
func (b *block) lighten() {
	b.q.w.held -= b.held
	b.held = 0
}

// bytes returns the size of the job's payload and its last snapshot.
func (d *Delivery) bytes() int {
	n := len(d.Payload)
	if d.saved != nil {
		n += len(d.saved.State)
	}
	return n
}

// shed drops the payload of a job that has to wait for others, if such jobs take up half of the
// room. mu is held.
func (b *block) shed(d *Delivery) {
	w := b.q.w
	if d.unloaded || w.opt.AtMostOnce || d.from == tableRunning || w.held <= w.opt.ReadAhead/2 || d.bytes() == 0 {
		return
	}
	d.unloaded, d.unloadedSize = true, d.bytes()
	d.Payload, d.saved = nil, nil
	b.weigh(d, 0)
}

// spare drops the payload of a job whose end is written, and whose id is remembered for a
// while. mu is held.
func (b *block) spare(d *Delivery) {
	b.weigh(d, 0)
	if b.seen[d.ID] == d && d.bytes() >= large {
		b.seen[d.ID] = spent[d.Priority]
	}
}

// spent are placeholders for jobs that are done, by priority.
var spent = func() (all [Idle + 1]*Delivery) {
	for p := range all {
		all[p] = &Delivery{Job: Job{Priority: p}, phase: phaseWritten}
	}
	return all
}()

// loads reports whether to read payloads of jobs whose turn has come: there is room, or the
// block has no other job that can start. mu is held.
func (b *block) loads() bool {
	return len(b.unloaded) > 0 && b.startable() && (b.unloaded[0].unloadedSize <= b.q.w.allow().left || b.allUnloaded())
}

// bared reports whether all startable jobs of the block lack their payloads.
func (b *block) allUnloaded() bool {
	for d := range b.ready.All() {
		if !d.unloaded {
			return false
		}
	}
	return true
}

// toLoad lists jobs whose payloads to read: those whose turn has come, at least one of them,
// and as many of the next jobs as fit. mu is held.
func (b *block) toLoad(room int) (list []*Delivery) {
	if !b.loads() {
		return nil
	}
	more := func(d *Delivery) bool {
		if !d.unloaded || d.row == rowLeaving || d.hasEnded() {
			return true
		}
		if len(list) > 0 && (room < d.unloadedSize || len(list) == b.q.w.opt.Batch) {
			return false
		}
		list, room = append(list, d), room-d.unloadedSize
		return true
	}
	for _, d := range b.unloaded {
		if !more(d) {
			return list
		}
	}
	for d := range b.next() {
		if !more(d) {
			break
		}
	}
	return list
}

// next iterates over the next jobs: of keys whose turn has come, and ready ones.
func (b *block) next() func(yield func(*Delivery) bool) {
	return func(yield func(*Delivery) bool) {
		for _, d := range b.unloaded {
			if l := b.keyQueues[d.line()]; d.line() != "" && l != nil {
				for o := range l.Waiting() {
					if !yield(o) {
						return
					}
				}
			}
		}
		b.ready.All()(yield)
	}
}

// The statements that read payloads, by table.
var loadStatements = map[table]*sqlrun.Stmt{tableReady: store.LoadReady, tableDelayed: store.LoadDelayed, tableRunning: store.LoadRunning}

// A payload is a payload that was read for a bare job.
type payload struct {
	text   []byte
	binary bool
	saved  *Progress
}

// loadSteps returns the steps that read the payloads of bare jobs.
func (f *flusher) loadSteps(t *trip) (steps []*sqlrun.Step) {
	t.loaded = map[int64]payload{}
	for _, part := range byTable(t.loads) {
		args := store.JobArgs(t.b.q.id, t.b.divided, part[0].Priority, idsOf(part))
		args["node"] = t.node
		stmt := loadStatements[part[0].from]
		rows := store.NewReader(stmt)
		steps = append(steps, &sqlrun.Step{Stmt: stmt, Args: args, Scan: func(row *sqlrun.Row) error {
			j := rows.Read(row)
			t.loaded[j.ID] = payload{text: j.Payload, binary: j.Binary, saved: progressOf(j)}
			return nil
		}})
	}
	return steps
}

// recordLoads gives jobs their payloads. Jobs whose turn has come continue; a job that was
// cancelled is forgotten. mu is held.
func (w *Worker) recordLoads(t *trip) {
	b := t.b
	for _, d := range t.loads {
		if !d.unloaded || d.row == rowLeaving || d.hasEnded() || d.from != tableRunning && b.seen[d.ID] != d {
			continue // it was taken or put back meanwhile
		}
		p, there := t.loaded[d.ID]
		waits := slices.Contains(b.unloaded, d)
		switch {
		case there:
			d.Payload, d.Binary, d.saved, d.unloaded = p.text, p.binary, p.saved, false
			b.weigh(d, d.bytes())
			if waits {
				b.unloaded = slices.DeleteFunc(b.unloaded, func(o *Delivery) bool { return o == d })
				b.makeReady(d)
			}
		case waits && d.from == tableRunning:
			b.unloaded = slices.DeleteFunc(b.unloaded, func(o *Delivery) bool { return o == d })
			b.count--
			w.forgo(d)
			w.releaseIfMine(b, d.line(), d.ID)
		default:
			b.remove(d)
		}
	}
	w.offer(b, len(t.loads))
}
