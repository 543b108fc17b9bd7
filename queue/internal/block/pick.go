package block

import (
	"math"
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Picks of the jobs of tenants ahead: see look.go.

// A Pick reads the next jobs of some tenants.
type Pick struct {
	Priority    int
	After, Upto int64 // ids
	Tenants     []string
	Limit       int

	closed int64 // jobs with keys are picked up to here
}

// mayPick reports whether there is somebody to pick jobs of, and room for them.
func (b *Block) mayPick(at instant.Instant) bool {
	if at < b.fair.rest || at < b.fair.review && b.fair.spare > 0 || b.room() <= 0 {
		return false
	}
	for p := range b.fair.waits {
		if len(b.fair.waits[p]) > 0 {
			return true
		}
	}
	return false
}

// room is how many more jobs may be picked.
func (b *Block) room() int { return max(1, b.AtOnce()/4) - b.fair.picked }

// spares returns how many jobs have to begin before one of a tenant is needed: few begin before its next one, of those here and,
// where there is room for a read, of those that it will bring, which are taken to be like those of the last one.
func (b *Block) spares(of tenancy, t *tenant) int {
	turn := b.fair.turns.Behind(of.tenant, of.priority)
	n := b.sooner(of.priority, turn)
	if b.HasRoom() && t.read == b.fair.read {
		n += t.brought
	}
	return n - b.few() + 1
}

// sooner counts jobs that begin no later than at a turn.
func (b *Block) sooner(priority int, turn int64) (n int) {
	for p := range priority {
		n += len(b.ready[p])
	}
	if n += b.ready.Upto(priority, turn); b.HasRoom() {
		n += upto(b.fair.brought[priority], turn-b.fair.turns.come[priority])
	}
	return n
}

// brings records the turns of jobs that a read has brought, from those on that have come.
func (b *Block) brings(jobs []*Job) {
	f := &b.fair
	f.read++
	f.spare = 0
	for p := range f.brought {
		f.brought[p] = f.brought[p][:0]
	}
	for _, j := range jobs {
		if j.guest == nil || j.Turn == 0 {
			continue
		}
		if j.guest.read != f.read {
			j.guest.read, j.guest.brought = f.read, 0
		}
		j.guest.brought++
		f.brought[j.Priority] = append(f.brought[j.Priority], j.Turn-f.turns.come[j.Priority])
	}
	for p := range f.brought {
		slices.Sort(f.brought[p])
	}
}

// pick plans to pick the next jobs of the most urgent priority, of the tenants that have waited longest for that; nil: nothing
// may be picked now.
func (b *Block) pick(now Now) *Pick {
	closed := int64(math.MaxInt64)
	for p := 1; p <= Priorities; p++ {
		closed = min(closed, b.known(p))
	}
	b.fair.review, b.fair.spare = math.MaxInt64, math.MaxInt
	for priority := range b.fair.waits {
		list := b.fair.waits[priority]
		if spare := b.sooner(priority, b.fair.turns.come[priority]) - b.few() + 1; spare > 0 { // nobody's turn is before that
			if len(list) > 0 {
				b.fair.spare = min(b.fair.spare, spare)
			}
			continue
		}
		p := &Pick{Priority: priority, Limit: b.room(), closed: closed}
		for n := len(list); n > 0 && len(p.Tenants) < maxPicks; n-- {
			of := list[0]
			list = list[1:]
			t := b.tenant(of)
			if t.left != 0 && !b.barred(math.MaxInt64) {
				t.left, t.upto = 0, min(t.upto, t.left-1)
			}
			from, upto := b.from(of, t), t.ahead
			if upto <= from && t.left == 0 || t.here >= b.few() {
				t.waits = false
				continue
			}
			if spare := b.spares(of, t); spare > 0 {
				b.fair.spare = min(b.fair.spare, spare)
				list = append(list, of)
				continue
			}
			if b.Keyed {
				upto = min(upto, closed)
			}
			if upto <= from {
				b.fair.review = now.At.Add(LookEvery / 4)
				list = append(list, of)
				continue
			}
			t.waits = false
			p.Tenants = append(p.Tenants, of.tenant)
			if p.Upto = max(p.Upto, upto); len(p.Tenants) == 1 || from < p.After {
				p.After = from
			}
		}
		if b.fair.waits[priority] = list; len(p.Tenants) > 0 {
			b.fair.spare = 0
			return p
		}
	}
	return nil
}

// takePicked takes in the jobs that were picked, in the order of their ids. It returns how many are new.
func (b *Block) takePicked(p *Pick, rows []*Job) (fresh int) {
	upto := p.Upto
	if len(rows) >= p.Limit {
		upto = rows[len(rows)-1].ID
	}
	ends := map[string]int64{} // tenants of which no more are taken
	for _, j := range rows {
		of := tenancy{j.Tenant, j.Priority}
		if _, ended := ends[j.Tenant]; ended || b.from(of, b.tenant(of)) < p.After || j.ID <= b.from(of, b.tenant(of)) {
			continue
		}
		if b.tooYoung(j, p) {
			ends[j.Tenant] = j.ID - 1
			continue
		}
		if b.isLeft(j, b.tenant(of)) {
			continue
		}
		behind := Read{After: Cursor{j.ID, j.ID, j.ID, j.ID, j.ID}}
		if b.skips(j, behind) {
			continue
		}
		if j.Picked = b.seen[j.ID] == nil; j.Picked && b.Add(j) {
			fresh++
		}
	}
	for _, name := range p.Tenants {
		end, ended := ends[name]
		if !ended {
			end = upto
		}
		of := tenancy{name, p.Priority}
		tenant := b.tenant(of)
		if b.from(of, tenant) >= p.After { // otherwise there are jobs before those: see pickFrom
			tenant.upto = max(tenant.upto, end)
		}
		b.line(of, tenant)
	}
	return fresh
}

// pickFrom has the jobs of a tenant picked from one on that is read again, since it was put back: those behind it were passed over.
func (b *Block) pickFrom(j *Job) {
	of := tenancy{j.Tenant, j.Priority}
	if t := b.fair.tenants[of]; t != nil && t.upto >= j.ID {
		t.upto = j.ID - 1
		b.line(of, t)
	}
}

// PickAgain has a pick made again whose trip has failed.
func (b *Block) PickAgain(p *Pick) {
	if p == nil || b.fair.turns == nil {
		return
	}
	for _, name := range p.Tenants {
		of := tenancy{name, p.Priority}
		b.line(of, b.tenant(of))
	}
}

// tooYoung reports whether a job with a key is not picked yet, nor what is behind it: one before it may not be committed.
func (b *Block) tooYoung(j *Job, p *Pick) bool {
	if j.Line == "" || b.fair.keyed && j.ID <= p.closed {
		return false
	}
	b.Keyed = true
	return true
}

// isLeft reports whether a job is left to the block's reads: it has a key, and it or a job before it, of whichever key and tenant, follows
// one that was committed late, which perhaps nobody has read. See [Block.comesLate]. What is behind it with a key is left, too.
func (b *Block) isLeft(j *Job, t *tenant) bool {
	if j.Line == "" || b.seen[j.ID] != nil {
		return false
	}
	if j.ID&store.Follower == store.Follower {
		b.marks(Sight{Priority: j.Priority, FirstMark: j.ID, LastMark: j.ID})
	}
	if t.left == 0 && b.barred(j.ID) || t.left > j.ID {
		t.left = j.ID
	}
	return t.left != 0 && t.left <= j.ID
}

// barred reports whether jobs with keys are left to the reads from an id on, or a lesser one.
func (b *Block) barred(id int64) bool {
	for p, marks := range b.fair.marks {
		if marks[0] <= id && marks[1] > b.Reads.cursor[p] {
			return true
		}
	}
	return false
}
