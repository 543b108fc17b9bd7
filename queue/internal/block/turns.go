package block

import "github.com/dbcron/dbcron/internal/instant"

// Turns order the jobs of a fair queue that may start: the tenants that have some take turns, as many as their weights
// say, whatever the number of their jobs. This is start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, 1996): a job's
// turn comes after that of its tenant's job before, and not before the turn that has come when it arrives. So a tenant
// that comes new is next, and one that had nothing to do for a while has saved up nothing.
//
// A worker has one for all its blocks of a queue. The zero value gives each tenant one turn.
type Turns struct {
	Weights map[string]int // of the tenants that have more than one turn

	look instant.Instant       // when the next of its blocks looks ahead that has room for a read
	come [Priorities + 1]int64 // the turn that has come, by priority
	next map[tenancy]int64     // the earliest turn of a tenant's next job, if that has not come
	many int                   // how many tenants next has before those are looked for whose turns have come
}

// A tenancy is a tenant's jobs of a priority.
type tenancy struct {
	tenant   string
	priority int
}

// aTurn is the distance between two turns of a tenant with the weight 1.
const aTurn = 1 << 20

// step returns the distance between two turns of a tenant.
func (t *Turns) step(tenant string) int64 { return aTurn / int64(max(1, t.Weights[tenant])) }

// Give returns the turn of a tenant's next job, which is positive, and counts for so many.
func (t *Turns) Give(tenant string, priority, cost int) int64 {
	if t.next == nil {
		t.next = map[tenancy]int64{}
	}
	if len(t.next) >= max(1000, t.many) {
		for of, at := range t.next {
			if at <= t.come[of.priority] {
				delete(t.next, of)
			}
		}
		t.many = 2 * len(t.next)
	}
	of := tenancy{tenant, priority}
	at := max(1, t.come[priority], t.next[of])
	t.next[of] = at + t.step(tenant)*int64(max(1, cost))
	return at
}

// Return gives back the turn of a job that leaves without having begun.
func (t *Turns) Return(tenant string, priority, cost int) {
	if of := (tenancy{tenant, priority}); t.next[of] > 0 {
		t.next[of] -= t.step(tenant) * int64(max(1, cost))
	}
}

// Come records that a job has begun whose turn had come.
func (t *Turns) Come(priority int, turn int64) { t.come[priority] = max(t.come[priority], turn) }

// Behind returns the earliest turn that a tenant's next job may have: the less it is, the less the tenant has had.
func (t *Turns) Behind(tenant string, priority int) int64 {
	return max(1, t.come[priority], t.next[tenancy{tenant, priority}])
}
