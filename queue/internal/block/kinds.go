package block

import (
	"cmp"
	"slices"

	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Jobs of kinds that the worker does not handle wait as for a limit that never opens: at a barrier. See
// queue/holder_kinds.go.

// barrier returns what holds back a job of a kind: a barrier, or the limiter of its kind; or nil.
func (b *Block) barrier(kind string) *limit.Limiter {
	return cmp.Or(b.host.Stranger(kind), b.host.Gate(kind))
}

// SortAnew sorts the jobs that were read and have not begun again, after the kinds that this
// worker or others handle have changed: those that may start, and those that wait at some barriers or cost too much. It returns
// their number.
func (b *Block) SortAnew(barriers ...*limit.Limiter) int {
	var all []*Job
	take := func(s *list) {
		all = slices.AppendSeq(all, s.All())
		*s = list{}
	}
	for _, g := range append(barriers, b.host.Whole()) {
		if g == nil {
			continue
		}
		if s := b.aside[g]; s != nil {
			take(s)
			delete(b.aside, g)
		}
		b.reconsider(g)
	}
	all = append(all, b.takeHeld()...)
	b.Count += len(all)
	take(&b.ready)
	if b.Left {
		b.Left = false
		b.Dues.Anew()
	}
	for _, j := range all {
		b.makeReady(j)
	}
	return len(all)
}

// reconsider has the jobs read again that were put back at a barrier.
func (b *Block) reconsider(g *limit.Limiter) {
	if first := b.skipped[g]; first != 0 {
		delete(b.skipped, g)
		b.ReadFrom(first)
	}
}

// leavesDelayed reports whether a due job stays in its table because this worker does not
// handle its kind. A ready job need not: it can be read again by its id; nor one of a key,
// whose place others know.
func (b *Block) leavesDelayed(j *Job, g *limit.Limiter) bool {
	if !g.Barred() || j.From != store.AmongDelayed || j.Line != "" {
		return false
	}
	b.Left = true
	return true
}

// FirstAt returns the kind of the first job that waits at a barrier, or "".
func (b *Block) FirstAt(g *limit.Limiter) string {
	if g == nil {
		return ""
	}
	if s := b.aside[g]; s != nil {
		for j := range s.FirstOf(1) {
			return j.Kind
		}
	}
	b.reconsider(g) // all jobs that were held back here have been cancelled
	return ""
}
