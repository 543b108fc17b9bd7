package block

import (
	"math"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// While one tenant floods a block of a fair queue, the jobs of others are far behind what was read. Trips therefore look ahead: which
// tenants have jobs beyond what was read, in pieces of many rows, of which only names and numbers travel. Of those tenants
// whose turns come before those of nearly all jobs here, the next ones are then picked, out of order. From then on they are like
// any job that was read: when the cursor comes to where they were, they are known, or gone. Tenants who have jobs in equal numbers
// get their turns by the reads, and nothing is picked.
//
// A tenant's jobs are picked in the order of their ids, from behind what was read of it on. So a key, whose jobs
// have one tenant, keeps its order: of blocks with keys only what is older than Window is picked, since all is committed
// there that is in time, and from the horizon on, below which all of that was read. A block that is read to its end needs no look.
//
// What is known of tenants is bounded: a block that knows of mostTenants is not looked at before some of their jobs have begun.

const (
	// lookRows is how many rows of a priority a trip looks at.
	lookRows = 10_000

	// maxPicks is how many tenants a trip picks jobs of.
	maxPicks = 100

	// mostTenants is of how many tenants with jobs ahead a block knows before it looks no further.
	mostTenants = 20_000
)

// A Look asks which tenants have jobs behind some ids.
type Look struct {
	After Cursor
	Limit int // how many rows of each priority it covers

	closed int64 // all ids up to here are committed, if they are in time
}

// A Sight is what a look has found of a tenant.
type Sight struct {
	Tenant      string
	Priority    int
	First, Last int64 // ids
	Rows        int

	FirstMark, LastMark int64 // of its jobs with keys those that follow a late one: see [Block.comesLate]; 0: none does
}

// A Pick reads the next jobs of some tenants.
type Pick struct {
	Priority    int
	After, Upto int64 // ids
	Tenants     []string
	Limit       int

	closed int64 // jobs with keys are picked up to here
}

// behind reports whether there are jobs that the block's reads do not come to soon.
func (b *Block) behind() bool {
	return b.fair.turns != nil && !b.terms.AtMostOnce && b.Open() && !b.Reads.Unseen && !b.Crowded() &&
		(b.Reads.Full || b.Reads.Dirty && !b.HasRoom())
}

// wantsAhead reports whether a trip looks ahead, or picks.
func (b *Block) wantsAhead(at instant.Instant) bool {
	return b.behind() && (b.mayLook(at) || b.mayPick(at))
}

// mayLook reports whether it is time to look. While reading is what takes the time, one block of a worker looks after the other, with
// pauses: by then the reads may have come to where it would.
func (b *Block) mayLook(at instant.Instant) bool {
	return at >= b.fair.look && (at >= b.fair.turns.look || !b.HasRoom())
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

// planAhead plans to look ahead, and to pick.
func (b *Block) planAhead(p *Plan, now Now) {
	if !b.behind() {
		if !b.Reads.Full {
			b.fair.looked, b.fair.sure = Cursor{}, Cursor{}
		}
		return
	}
	if b.Keyed && !b.fair.keyed { // what was not looked for before may be before what was picked
		b.fair.keyed, b.fair.looked, b.fair.sure = true, Cursor{}, Cursor{}
		for _, t := range b.fair.tenants {
			t.upto = 0
		}
	}
	if b.mayLook(now.At) {
		if b.forgetTenants(); len(b.fair.tenants) < mostTenants {
			p.Look = b.planLook(now)
		} else {
			b.fair.look = now.At.Add(LookEvery / 4)
		}
	}
	if b.mayPick(now.At) {
		p.Pick = b.pick(now)
	}
}

// planLook plans a look from where the last one ended, or now and then from further back: jobs that were committed late.
func (b *Block) planLook(now Now) *Look {
	l := &Look{After: b.fair.looked, Limit: lookRows, closed: now.Ago()(Window)}
	b.fair.turns.look = now.At.Add(LookEvery / 20) // until it is known how long this one takes
	if now.At >= b.fair.relook {
		for p := range l.After {
			l.After[p] = min(l.After[p], b.fair.sure[p])
		}
		b.fair.relook = now.At.Add(LookEvery)
	}
	for p := range l.After {
		l.After[p] = max(l.After[p], b.readTo(p))
	}
	return l
}

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

// known returns the id up to which all jobs that are in time were read, or seen by looks.
func (b *Block) known(priority int) int64 { return max(b.fair.sure[priority], b.readTo(priority)) }

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

// takeAhead takes in what a trip has seen and picked.
func (b *Block) takeAhead(p *Plan, f *Found, at instant.Instant, took time.Duration, t *Taken) {
	if b.fair.turns == nil {
		return
	}
	if p.Look != nil {
		b.sees(p.Look, f.Sights, at, took)
	}
	if p.Pick != nil {
		fresh := b.takePicked(p.Pick, f.Picked)
		if b.HasRoom() { // reading is what takes the time: picks have a quarter of it
			b.fair.rest = at.Add(3 * took)
		}
		switch t.Fresh += fresh; {
		case fresh > 0:
		case len(f.Picked) == 0: // they are above what may be picked yet, or gone: the next pick would find as little
			b.fair.rest = at.Add(LookEvery / 4)
		default: // all were passed over: many may be. A tenant that has nothing in memory may wait for this, so a slow trip counts for little
			b.fair.rest = at.Add(min(10*took, LookEvery/20))
		}
	}
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

// marks notes jobs that follow late ones. Only those ahead count, so it does with the first and the last.
func (b *Block) marks(s Sight) {
	if s.FirstMark == 0 {
		return
	}
	marks := &b.fair.marks[s.Priority]
	if marks[1] <= b.Reads.cursor[s.Priority] {
		marks[0] = s.FirstMark
	}
	marks[0], marks[1] = min(marks[0], s.FirstMark), max(marks[1], s.LastMark)
}

// sees takes in what a look has found.
func (b *Block) sees(l *Look, found []Sight, at instant.Instant, took time.Duration) {
	var rows [Priorities + 1]int
	upto := l.After
	for _, s := range found {
		of := tenancy{s.Tenant, s.Priority}
		t := b.tenant(of)
		switch {
		case b.fair.keyed: // jobs of its between may not be committed yet
		case t.ahead <= b.from(of, t) && s.First > b.fair.looked[s.Priority]: // it has none between what was seen and this
			t.upto = max(t.upto, s.First-1)
		case s.First <= t.upto: // perhaps committed late
			t.upto = s.First - 1
		}
		t.ahead = max(t.ahead, s.Last)
		b.line(of, t)
		b.marks(s)
		rows[s.Priority] += s.Rows
		upto[s.Priority] = max(upto[s.Priority], s.Last)
	}
	b.fair.turns.look = at.Add(5 * took)
	b.fair.look = at.Add(max(10*took, LookEvery/4))
	for p := range upto {
		b.fair.looked[p] = max(b.fair.looked[p], upto[p])
		complete := l.closed
		if rows[p] >= l.Limit {
			b.fair.look = at.Add(10 * took)
			complete = min(complete, upto[p])
			if upto[p] < b.fair.looked[p] {
				b.fair.relook = at
			}
		}
		if l.After[p] <= b.known(p) {
			b.fair.sure[p] = max(b.fair.sure[p], complete)
		}
	}
}

// forgetTenants forgets those that have no jobs here or ahead.
func (b *Block) forgetTenants() {
	for of, t := range b.fair.tenants {
		if t.here == 0 && !t.waits && t.ahead <= b.from(of, t) {
			delete(b.fair.tenants, of)
		}
	}
}
