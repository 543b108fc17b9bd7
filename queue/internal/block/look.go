package block

import (
	"time"

	"github.com/dbcron/dbcron/internal/instant"
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

// known returns the id up to which all jobs that are in time were read, or seen by looks.
func (b *Block) known(priority int) int64 { return max(b.fair.sure[priority], b.readTo(priority)) }

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
