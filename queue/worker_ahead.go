package queue

import (
	"math"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Reading ahead. A worker reads jobs before it has a place for them, up to Batch of each
// block, and further ones that wait for others of their keys or for limits. What their
// payloads may take is bounded by ReadAhead, over all blocks. A job whose payload does not
// fit is kept without: it is bare. When its turn has come its block's flusher reads the
// payload, and those of the next ones that fit. So memory never keeps a job from its turn:
// it only costs a further read.
//
// What has ended and is not written yet counts, too. What runs does not: that is what
// places bound.
//
// Jobs that wait for others take up half of the room at the most, so that those that may
// start have the rest. A block that has jobs to start reads no more while the room is half
// full, and fewer rows at once when they are large.
//
// A worker that removes jobs before they are done has no rows to read payloads from again.
// It keeps all of them, and reads fewer at once.

// defaultReadAhead is for the payloads of what was read and has not begun.
const defaultReadAhead = 64 << 20

// large is from where on a payload is worth some work to spare it.
const large = 4 << 10

// An allowance is how many bytes of payloads a round may keep.
type allowance struct {
	left int
	rows int // that were read, and how many bytes their payloads had
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

// allow says how much a round may read: the flushers share what there is room for.
func (w *Worker) allow() allowance {
	if w.opt.AtMostOnce {
		return allowance{left: math.MaxInt}
	}
	return allowance{left: max(0, w.opt.ReadAhead-w.held) / max(1, w.opt.Connections)}
}

// rowsAtOnce is how many rows to read of a block: as many as there is room for, if they are
// as large as those before. It is not much less than a batch, since a row without its
// payload is small, and may be followed by others that can start.
func (b *block) rowsAtOnce() int {
	w := b.q.w
	if b.average == 0 {
		return b.atOnce()
	}
	room := max(0, w.opt.ReadAhead-w.held) / max(1, w.opt.Connections)
	return min(b.atOnce(), max(1, b.atOnce()/10, room/b.average))
}

// sized takes in how large the rows were that a round has read.
func (b *block) sized(a allowance) {
	if a.rows > 0 {
		b.average = (b.average + a.size/a.rows + 1) / 2
	}
}

// weigh counts what a job takes up that waits to begin, or for its end to be written: n
// bytes. mu is held.
func (b *block) weigh(d *Delivery, n int) {
	if !b.gone {
		b.held += n - d.held
		b.q.w.held += n - d.held
	}
	d.held = n
}

// lighten counts nothing any more of a block that is gone. mu is held.
func (b *block) lighten() {
	b.q.w.held -= b.held
	b.held = 0
}

// bytes is what a job takes up by its payload and its last snapshot.
func (d *Delivery) bytes() int {
	n := len(d.Payload)
	if d.saved != nil {
		n += len(d.saved.State)
	}
	return n
}

// shed has a job that has to wait for others wait without its payload, if such jobs take up
// half of the room. mu is held.
func (b *block) shed(d *Delivery) {
	w := b.q.w
	if d.bare || w.opt.AtMostOnce || d.from == tableRunning || w.held <= w.opt.ReadAhead/2 || d.bytes() == 0 {
		return
	}
	d.bare, d.lacks = true, d.bytes()
	d.Payload, d.saved = nil, nil
	b.weigh(d, 0)
}

// spare forgets the payload of a job whose end is written, and whose id is remembered for
// a while. mu is held.
func (b *block) spare(d *Delivery) {
	b.weigh(d, 0)
	if b.seen[d.ID] == d && d.bytes() >= large {
		b.seen[d.ID] = spent[d.Priority]
	}
}

// spent stand for jobs that are done, by priority.
var spent = func() (all [Idle + 1]*Delivery) {
	for p := range all {
		all[p] = &Delivery{Job: Job{Priority: p}, ended: true}
	}
	return all
}()

// loads reports whether to read payloads of jobs whose turn has come: if there is room, or if
// the block has no other job that can start. mu is held.
func (b *block) loads() bool {
	return len(b.bare) > 0 && b.startable() && (b.bare[0].lacks <= b.q.w.allow().left || b.bared())
}

// bared reports whether no job of the block can start since they all lack their payloads.
func (b *block) bared() bool {
	for d := range b.ready.All() {
		if !d.bare {
			return false
		}
	}
	return true
}

// toLoad lists jobs whose payloads are to be read: those whose turn has come, at least one
// of them, and of those that come next as many as fit. mu is held.
func (b *block) toLoad(room int) (list []*Delivery) {
	if !b.loads() {
		return nil
	}
	more := func(d *Delivery) bool {
		if !d.bare || d.moving || d.ended {
			return true
		}
		if len(list) > 0 && (room < d.lacks || len(list) == b.q.w.opt.Batch) {
			return false
		}
		list, room = append(list, d), room-d.lacks
		return true
	}
	for _, d := range b.bare {
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

// next lists what is about to follow: of the keys whose turn has come, and of what is
// ready.
func (b *block) next() func(yield func(*Delivery) bool) {
	return func(yield func(*Delivery) bool) {
		for _, d := range b.bare {
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

// A payload is what is read for a job that is bare.
type payload struct {
	text   []byte
	binary bool
	saved  *Progress
}

// loadSteps read the payloads of jobs that are bare.
func (f *flusher) loadSteps(t *round) (steps []*sqlrun.Step) {
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

// tookLoads gives jobs their payloads. Those whose turn has come go on; one that somebody
// has cancelled is forgotten. mu is held.
func (w *Worker) tookLoads(t *round) {
	b := t.b
	for _, d := range t.loads {
		if !d.bare || d.moving || d.ended || d.from != tableRunning && b.seen[d.ID] != d {
			continue // it was taken, or put back, meanwhile
		}
		p, there := t.loaded[d.ID]
		waits := slices.Contains(b.bare, d)
		switch {
		case there:
			d.Payload, d.Binary, d.saved, d.bare = p.text, p.binary, p.saved, false
			b.weigh(d, d.bytes())
			if waits {
				b.bare = slices.DeleteFunc(b.bare, func(o *Delivery) bool { return o == d })
				b.makeReady(d)
			}
		case waits && d.from == tableRunning:
			b.bare = slices.DeleteFunc(b.bare, func(o *Delivery) bool { return o == d })
			b.count--
			w.forgo(d)
			w.releaseIfMine(b, d.line(), d.ID)
		default:
			b.remove(d)
		}
	}
	w.offer(b, len(t.loads))
}
