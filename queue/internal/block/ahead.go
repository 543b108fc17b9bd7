package block

import (
	"math"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// Reading ahead. A worker reads jobs before it has a slot for them, up to Batch of each block,
// plus jobs that wait for others of their keys or for limits. A Room bounds their payloads
// across all blocks. A job whose payload does not fit is kept without it: it is unloaded. When its
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

// Large is the size in bytes from which it is worth some work to avoid keeping a payload.
const Large = 4 << 10

// A Room is the memory of a worker for payloads that it reads ahead. All sizes are in bytes.
type Room struct {
	Size    int // all of it
	Held    int // taken
	Readers int // flushers that share what is left
}

// left returns what one flusher may take.
func (r *Room) left() int { return max(0, r.Size-r.Held) / max(1, r.Readers) }

// An Allowance is the size of payloads that a trip may keep.
type Allowance struct {
	left int
	rows int // rows that were read, and the size of their payloads
	size int
}

// Takes reports whether a payload of n bytes may be kept, and counts it.
func (a *Allowance) Takes(n int) bool {
	a.rows, a.size = a.rows+1, a.size+n
	if n > a.left {
		return false
	}
	a.left -= n
	return true
}

// Allow returns what a trip may read.
func (t *Terms) Allow() Allowance {
	if t.AtMostOnce {
		return Allowance{left: math.MaxInt}
	}
	return Allowance{left: t.left()}
}

// AtOnce returns how many jobs of the block to read at once, according to its row.
func (b *Block) AtOnce() int { return max(b.Batch, b.terms.Batch) }

// rowsAtOnce returns how many rows of a block to read: as many as there is room for, if they
// are as large as previous ones. It is not much less than a batch, since a row without its
// payload is small, and others that can start may follow.
func (b *Block) rowsAtOnce() int {
	if b.average == 0 {
		return b.AtOnce()
	}
	return min(b.AtOnce(), max(1, b.AtOnce()/10, b.terms.left()/b.average))
}

// sized records the size of the rows that a trip has read.
func (b *Block) sized(a Allowance) {
	if a.rows > 0 {
		b.average = (b.average + a.size/a.rows + 1) / 2
	}
}

// HasRoom reports whether to read more startable jobs. Jobs that wait for others of their keys do
// not count, because the job that they wait for may be still unread.
func (b *Block) HasRoom() bool {
	n := b.Count - b.fair.picked // those do not keep the block from being read
	return n == 0 || n < b.AtOnce()/2 && b.terms.Held <= b.terms.Size/2
}

// Crowded reports that so many jobs wait for others of their keys that no more such jobs are
// read.
func (b *Block) Crowded() bool {
	for _, s := range b.aside { // or for a limit
		if s.Len() >= b.fill() {
			return true
		}
	}
	return b.holding >= b.fill() || len(b.seen) >= 100*b.terms.Batch || len(b.Refusals) >= MaxRefused
}

// Weigh counts what a job carries that waits to begin, or for its end to be written.
func (b *Block) Weigh(j *Job) {
	n := j.Size
	if j.Unloaded {
		n = 0
	}
	b.weigh(j, n)
}

// Unweigh stops counting it.
func (b *Block) Unweigh(j *Job) { b.weigh(j, 0) }

func (b *Block) weigh(j *Job, n int) {
	if !b.Gone {
		b.held += n - j.counted
		b.terms.Held += n - j.counted
	}
	j.counted = n
}

// shed drops the payload of a job that has to wait for others, if such jobs take up half of the
// room.
func (b *Block) shed(j *Job) {
	t := b.terms
	if j.Unloaded || t.AtMostOnce || j.From == store.AmongRunning || t.Held <= t.Size/2 || j.Size == 0 {
		return
	}
	j.Unloaded = true
	b.host.Shed(j)
	b.Unweigh(j)
}

// Spare drops the payload of a job whose end is written, and whose id is remembered for a
// while.
func (b *Block) Spare(j *Job) {
	b.Unweigh(j)
	if b.seen[j.ID] == j && !j.Unloaded && j.Size >= Large {
		b.seen[j.ID] = spent[j.Priority]
	}
}

// spent are placeholders for jobs that are done, by priority.
var spent = func() (all [Priorities + 1]*Job) {
	for p := range all {
		all[p] = &Job{Priority: p, Phase: PhaseWritten}
	}
	return all
}()

// Lacks reports whether the turn of jobs has come whose payloads were left in the table.
func (b *Block) Lacks() bool { return len(b.unloaded) > 0 }

// Loads reports whether to read such payloads: there is room, or the block has no other job that can start.
func (b *Block) Loads() bool {
	return len(b.unloaded) > 0 && b.Startable() && (b.unloaded[0].Size <= b.terms.Allow().left || b.allUnloaded())
}

// allUnloaded reports whether all startable jobs of the block lack their payloads.
func (b *Block) allUnloaded() bool {
	for j := range b.ready.All() {
		if !j.Unloaded {
			return false
		}
	}
	return true
}

// toLoad lists jobs whose payloads to read: those whose turn has come, at least one of them,
// and as many of the next jobs as fit.
func (b *Block) toLoad(room int) (all []*Job) {
	if !b.Loads() {
		return nil
	}
	more := func(j *Job) bool {
		if !j.Unloaded || j.Row == RowLeaving || j.HasEnded() {
			return true
		}
		if len(all) > 0 && (room < j.Size || len(all) == b.terms.Batch) {
			return false
		}
		all, room = append(all, j), room-j.Size
		return true
	}
	for _, j := range b.unloaded {
		if !more(j) {
			return all
		}
	}
	for j := range b.next() {
		if !more(j) {
			break
		}
	}
	return all
}

// next iterates over the next jobs: of keys whose turn has come, and ready ones.
func (b *Block) next() func(yield func(*Job) bool) {
	return func(yield func(*Job) bool) {
		for _, j := range b.unloaded {
			if l := b.keyQueues[j.Line]; j.Line != "" && l != nil {
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
