package share

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Free lists the blocks that anybody may take: those that have waited longest first,
// and of those that were never had, any.
func Free(rows []store.BlockRow) []store.BlockRow {
	free := slices.DeleteFunc(slices.Clone(rows), func(r store.BlockRow) bool { return !r.Free() })
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	slices.SortStableFunc(free, func(a, b store.BlockRow) int { return cmp.Compare(a.LockAt, b.LockAt) })
	return free
}

// Vacancies are the blocks of a queue that were free when a worker last read them, and since when it has seen them so. That they
// are another worker's share is no reason to wait: it may be dead and not yet expired, unable to take blocks, or a row that
// outlives its process.
type Vacancies map[int]vacancy

type vacancy struct {
	fence int64
	from  instant.Instant
}

// Note returns the vacancies as the rows show them at an instant.
func (v Vacancies) Note(rows []store.BlockRow, at instant.Instant) Vacancies {
	now := Vacancies{}
	for _, r := range rows {
		if !r.Free() {
			continue
		}
		one := v[r.Divided]
		if one.from == 0 || one.fence != r.Fence {
			one = vacancy{r.Fence, at}
		}
		now[r.Divided] = one
	}
	return now
}

// Over returns the blocks that have been free for so long that a worker takes them beyond its share.
func (v Vacancies) Over(at instant.Instant, after time.Duration) map[int]bool {
	over := map[int]bool{}
	for divided, one := range v {
		over[divided] = at.Sub(one.from) >= after
	}
	return over
}

// Earlier returns the vacancies as if they had been seen earlier.
func (v Vacancies) Earlier(by time.Duration) Vacancies {
	all := Vacancies{}
	for divided, one := range v {
		all[divided] = vacancy{one.fence, one.from.Add(-by)}
	}
	return all
}

// An Allotment is what a worker may take of a part of a queue's blocks.
type Allotment struct {
	Free   []store.BlockRow // those that are left, in the order in which it takes them
	Vacant map[int]bool     // these it takes beyond its share
	Lacks  int              // how many it lacks; negative: it has more than its share
}

// Next takes those out of the list that are to be tried next.
func (c *Allotment) Next() (picked []store.BlockRow) {
	n, left := c.Lacks, c.Free[:0]
	for _, r := range c.Free {
		if n <= 0 && !c.Vacant[r.Divided] {
			left = append(left, r)
			continue
		}
		n--
		picked = append(picked, r)
	}
	c.Free = left
	return picked
}

// Took counts a block that was taken. It reports whether the block is beyond the worker's share.
func (c *Allotment) Took() (beyond bool) {
	c.Lacks--
	return c.Lacks < 0
}
