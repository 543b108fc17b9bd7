package block

import (
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A block of a fair queue. Its jobs begin by turns of their tenants: see [Turns]. It is read in the order of ids, as any
// other, and so that one tenant's flood does not keep it from the jobs of others, it also looks ahead: see [Look].

// fairness is what a block of a fair queue knows of its tenants.
type fairness struct {
	turns   *Turns              // nil: the queue is not fair
	tenants map[tenancy]*tenant // those that have jobs here, or ahead
	looked  Cursor              // how far trips have looked
	sure    Cursor              // up to where they have seen all that is in time
	look    instant.Instant     // when to look next
	relook  instant.Instant     // when to look once more
	picked  int                 // jobs that were picked, and may start
	keyed   bool                // what it knows takes keys into account

	// The ids of the first and the last job ahead that follow late ones: see [Block.isLeft].
	marks [Priorities + 1][2]int64

	waits [Priorities + 1][]tenancy // tenants with few jobs here and more ahead: jobs of theirs are picked in turn
	rest  instant.Instant           // when to pick next

	// Once nobody was found to pick jobs of, it is looked again then, or when so many jobs have begun.
	review instant.Instant
	spare  int

	read    int                     // counts the reads of ready jobs
	brought [Priorities + 1][]int64 // the turns of what the last one has brought, from the one on that had come then, in order
}

// A tenant is what a block knows of one, and of one priority.
type tenant struct {
	here  int   // how many of its jobs may start
	upto  int64 // up to this id its jobs were picked, or are not there
	ahead int64 // the greatest of its ids that a look has found
	left  int64 // from this id on its jobs with keys are left to the reads, for a while; 0: none are
	waits bool  // it is listed among those that jobs are picked of

	brought, read int // how many jobs of its that read has brought
}

// Share makes the block one of a fair queue, or of one that is not (nil), and orders its jobs anew.
func (b *Block) Share(turns *Turns) {
	if b.fair.turns == turns {
		return
	}
	for _, j := range b.seen {
		if j.Phase == PhaseRead {
			j.guest, j.Picked, j.Turn = nil, false, 0
		}
	}
	b.fair = fairness{turns: turns}
	for _, j := range b.unloaded {
		b.comes(j)
	}
	doubted := b.doubted
	b.doubted = nil
	for _, j := range doubted {
		b.comes(j)
		b.doubt(j)
	}
	b.reorder(&b.ready, b.comes)
	for _, l := range b.aside {
		b.reorder(l, func(j *Job) {
			b.comes(j)
			b.giveBack(j)
			b.goes(j)
		})
	}
	b.reorderHeld()
}

// reorder gives the jobs of a list new turns.
func (b *Block) reorder(l *list, then func(*Job)) {
	was := *l
	*l = list{}
	for j := range was.All() {
		b.turn(j)
		l.Put(j.Place(), j)
		then(j)
	}
}

// Fair reports whether the block's queue is fair.
func (b *Block) Fair() bool { return b.fair.turns != nil }

// turn gives a job its turn, unless it has one.
func (b *Block) turn(j *Job) {
	if b.fair.turns != nil && j.Turn == 0 {
		j.Turn = b.fair.turns.Give(j.Tenant, j.Priority, j.Cost)
	}
}

// giveBack takes the turn of a job that could start from what its tenant has had: it does not begin now.
func (b *Block) giveBack(j *Job) {
	if j.guest != nil && j.Turn != 0 {
		b.fair.turns.Return(j.Tenant, j.Priority, j.Cost)
	}
}

// hasCome records that the turn of a job has come.
func (b *Block) hasCome(j *Job) {
	if b.fair.turns != nil {
		b.fair.turns.Come(j.Priority, j.Turn)
	}
}

// comes counts a job that may start.
func (b *Block) comes(j *Job) {
	if b.fair.turns == nil || j.From == store.AmongRunning || j.guest != nil {
		return
	}
	j.guest = b.tenant(tenancy{j.Tenant, j.Priority})
	j.guest.here++
	if j.Picked {
		b.fair.picked++
	}
}

// goes no longer counts it: it has begun, waits for a limit, or is gone.
func (b *Block) goes(j *Job) {
	if j.guest == nil {
		return
	}
	t := j.guest
	t.here--
	j.guest = nil
	b.fair.spare--
	if j.Picked {
		b.fair.picked--
	}
	b.line(tenancy{j.Tenant, j.Priority}, t)
}

// line lists a tenant among those that jobs are picked of, if it has more ahead than it has here.
func (b *Block) line(of tenancy, t *tenant) {
	if !t.waits && t.here < b.few() && (t.ahead > b.from(of, t) || t.left != 0) {
		t.waits = true
		b.fair.waits[of.priority] = append(b.fair.waits[of.priority], of)
		b.fair.spare = min(b.fair.spare, b.spares(of, t))
	}
}

// few is of how many jobs here a tenant does not need more.
func (b *Block) few() int { return max(1, b.AtOnce()/8) }

// tenant returns what is known of one.
func (b *Block) tenant(of tenancy) *tenant {
	t := b.fair.tenants[of]
	if t == nil {
		if b.fair.tenants == nil {
			b.fair.tenants = map[tenancy]*tenant{}
		}
		t = &tenant{}
		b.fair.tenants[of] = t
	}
	return t
}

// from returns the id behind which the unread jobs of a tenant are.
func (b *Block) from(of tenancy, t *tenant) int64 { return max(t.upto, b.readTo(of.priority)) }

// readTo returns the id up to which jobs were read; with keys, up to which all were that are in time.
func (b *Block) readTo(priority int) int64 {
	if b.fair.keyed {
		return min(b.Reads.cursor[priority], b.Reads.horizon[priority])
	}
	return b.Reads.cursor[priority]
}
