package block

import (
	"slices"

	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A backlog is the jobs of a block that cannot begin yet: they wait behind others of their key,
// or for a limit of their kind. A block that is crowded with them puts them back: it forgets
// that it has read them, skips their rows from there on, and continues with the jobs behind
// them. Of a key whose jobs end one after the other it keeps the next ones. Of a key that
// stands still it keeps none: its first job runs for long, runs elsewhere, or waits for its
// retry or for a limit.
//
// When their turn comes, the block is read again from the first job that was put back. Up to where
// all is committed that is in time, that is a separate read, which takes the jobs of keys that need
// some, and does not affect the block's other reads. Beyond it the block is read from the horizon in
// any case.
//
// So memory stays bounded, except for the names of keys that stand still, and neither a key nor
// a kind keeps others from beginning. The price is a second read of what was put back.

// backlog is what was put back.
type backlog struct {
	skipped map[*limit.Limiter]int64       // the first job that was, by kinds and tenants at a limit
	gated   map[*limit.Limiter][]*keyQueue // keys all of whose jobs were, because the first waits for a limit
	resumed []*keyQueue                    // keys whose jobs are to be read again
	reread  bool                           // the last read was of such jobs
}

// evict makes room in a crowded block. Workers that delete rows before jobs run have no rows
// to leave jobs to.
func (b *Block) evict() {
	if b.terms.AtMostOnce || !b.Crowded() {
		return
	}
	b.evictHeld()
	keep := b.keeps()
	for _, l := range b.keyQueues {
		n := keep
		if b.standsStill(l) {
			n = 0
		}
		l.PutBack(n, b.skipReady)
	}
	most := b.fill()
	if len(b.seen) >= 100*b.terms.Batch { // many kinds with a few jobs each
		most = min(most, 50*b.terms.Batch/max(1, len(b.aside)))
	}
	for g, s := range b.aside {
		if s.Len() < most || b.host.Opens(g) && !b.terms.PerCaller {
			continue
		}
		keep := most / 2
		s.RemoveFunc(func(j *Job) bool {
			if keep--; keep >= 0 || j.From != store.AmongReady && !b.leavesDelayed(j, g) || !b.makesWay(j, g) {
				return false
			}
			if j.From == store.AmongDelayed {
				delete(b.seen, j.ID)
				b.Unweigh(j)
				return true
			}
			if b.skipped == nil {
				b.skipped = map[*limit.Limiter]int64{}
			}
			b.skipped[g] = Least(b.skipped[g], j.ID)
			b.skip(j)
			return true
		})
	}
}

// skipReady leaves a ready job of a key to a later read.
func (b *Block) skipReady(j *Job) bool {
	if j.From != store.AmongReady {
		return false
	}
	b.skip(j)
	return true
}

// makesWay takes a job that waits for a limit out of its key queue, with those behind it. It
// returns false if the job has to stay, because others of its key have begun with it, or its
// trial is not over.
func (b *Block) makesWay(j *Job, g *limit.Limiter) bool {
	l := b.keyQueues[j.Line]
	switch {
	case j.Line == "":
		return true
	case l == nil || j.Tried || !l.GiveWay(j.ID, b.skipReady):
		return false
	}
	l.limiter = g
	if b.gated == nil {
		b.gated = map[*limit.Limiter][]*keyQueue{}
	}
	b.gated[g] = append(b.gated[g], l)
	return true
}

// keeps returns how many jobs to keep of a key whose jobs end one after the other: all such
// keys together keep half of what makes a block crowded.
func (b *Block) keeps() int {
	lines := 0
	for _, l := range b.keyQueues {
		if l.Len() > 0 {
			lines++
		}
	}
	return max(1, 50*b.terms.Batch/max(1, lines))
}

// fill returns how many jobs are set aside for a limit before some are put back.
func (b *Block) fill() int { return 20 * b.terms.Batch }

// standsStill reports whether the jobs of a key wait for one that will not end soon: it is
// elsewhere, was checked out because it runs for long, or its end is refused.
func (b *Block) standsStill(l *keyQueue) bool {
	t, held := l.Holder()
	return held && (t.Away || b.host.IsOut(t.ID) || b.Bars(l.key))
}

// skips reports whether a job that was read stays in its table because it is behind some that
// were put back. Once the key moves again, the first job returned by a read that began before
// them is the key's next one.
func (b *Block) skips(j *Job, r Read) bool {
	if b.seen[j.ID] != nil {
		return false
	}
	if j.Line == "" {
		g := b.barrier(j.Kind)
		if b.skipped[g] == 0 {
			if len(b.skipped) == 0 {
				return false
			}
			if g = b.host.Tenant(j.Tenant); b.skipped[g] == 0 {
				return false
			}
		}
		b.skipped[g] = Least(b.skipped[g], j.ID)
		b.skip(j)
		return true
	}
	l := b.keyQueues[j.Line]
	if l == nil || l.Skipped() == 0 {
		return false
	}
	if l.Skips(j.ID, r.After[j.Priority], b.needs(l)) {
		b.skip(j)
		return true
	}
	if l.Skipped() == 0 {
		l.limiter = nil
		b.pickFrom(j)
	}
	return false
}

// skip records that a job stays in its table.
func (b *Block) skip(j *Job) {
	delete(b.seen, j.ID)
	b.goes(j)
	b.Unweigh(j)
	b.Reads.Pass(j.Priority, j.ID)
}

// needs reports whether to read the jobs of a key that were put back: few are left of it, and
// it does not stand still.
func (b *Block) needs(l *keyQueue) bool {
	return l.Wants(b.terms.Batch/2+1) && !b.standsStill(l) && (l.limiter == nil || b.skipped[l.limiter] == 0)
}

// resume schedules a read of the jobs of a key that were put back, now that few are left.
func (b *Block) resume(l *keyQueue) {
	if !l.resumed {
		l.resumed, b.resumed = true, append(b.resumed, l)
	}
	if l.Skipped() > b.Reads.Committed() {
		b.Reads.Back()
	}
	b.host.Owes()
}

// readOn has jobs of a line that were put back read, if it needs some.
func (b *Block) readOn(l *keyQueue) {
	if b.needs(l) {
		b.resume(l)
	}
}

// rereads returns the first job below the horizon that was put back and that a key needs; 0:
// there is none.
func (b *Block) rereads() (first int64) {
	for _, l := range b.resumed {
		if l.Skipped() <= b.Reads.Committed() && b.needs(l) {
			first = Least(first, l.Skipped())
		}
	}
	return first
}

// keepWanted returns the jobs to take from such a read: those of keys that need some, up to
// where all priorities have been returned.
func (b *Block) keepWanted(r Read, rows []*Job) []*Job {
	upto := r.Upto
	var read [Priorities + 1]int
	var last [Priorities + 1]int64
	for _, j := range rows {
		read[j.Priority]++
		last[j.Priority] = max(last[j.Priority], j.ID)
	}
	for p := range read {
		if read[p] >= r.Limit {
			upto = min(upto, last[p])
		}
	}
	from := map[*keyQueue]int64{}
	for _, l := range b.resumed {
		if l.Skipped() > r.After[1] && l.Skipped() <= upto && b.needs(l) {
			from[l], l.limiter = l.Skipped(), nil
			l.SkipFrom(upto + 1)
		}
	}
	return slices.DeleteFunc(rows, func(j *Job) bool {
		first, is := from[b.keyQueues[j.Line]]
		return !is || j.Line == "" || j.ID < first || j.ID > upto || b.seen[j.ID] != nil
	})
}

// ResumeOf schedules a read of the jobs of a kind, or a tenant, that were put back, once few are left that
// wait for the limit. It reports whether the block may have jobs that wait for it.
func (b *Block) ResumeOf(g *limit.Limiter) bool {
	if g.Tenant != "" {
		return b.resumeTenant(g)
	}
	if first := b.skipped[g]; first != 0 && b.aside[g].Len() < b.fill()/4 {
		delete(b.skipped, g)
		b.ReadFrom(first)
	}
	return true
}

// ResumeOpen does so for all limiters that let jobs pass now.
func (b *Block) ResumeOpen() {
	for g := range b.skipped {
		if b.host.Opens(g) {
			b.ResumeOf(g)
		}
	}
}

// ReadFrom schedules another read of the block from an id on.
func (b *Block) ReadFrom(id int64) {
	b.Reads.From(id)
	b.host.Owes()
}

// hasReadAgain releases keys whose jobs were to be read again: a complete read has returned all
// that exist.
func (b *Block) hasReadAgain(r Read) {
	goes := func(l *keyQueue) bool {
		if b.needs(l) {
			if r.Back || b.Reads.Full || slices.Max(r.After[1:]) >= l.Skipped() {
				return false // it began behind them, or was cut off
			}
			l.SkipFrom(0)
			l.limiter = nil
		}
		l.resumed = false
		b.tidy(l)
		return true
	}
	b.resumed = slices.DeleteFunc(b.resumed, goes)
	if r.Back || b.Reads.Full {
		return
	}
	for g, lines := range b.gated {
		if b.skipped[g] != 0 {
			continue
		}
		delete(b.gated, g)
		for _, l := range lines {
			if !goes(l) { // it was read in parts, and the first job put back is not there any more
				b.resume(l)
			}
		}
	}
}
