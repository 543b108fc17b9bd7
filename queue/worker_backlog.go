package queue

import (
	"slices"

	"github.com/dbcron/dbcron/queue/internal/board"
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
// When their turn comes, the block is read again from the first job that was put back. Below
// the horizon that is a separate read, which takes the jobs of keys that need some, and does
// not affect the block's other reads. Above it the block is read from the horizon in any case.
//
// So memory stays bounded, except for the names of keys that stand still, and neither a key nor
// a kind keeps others from beginning. The price is a second read of what was put back.

// evict makes room in a crowded block. Workers that delete rows before jobs run have no rows
// to leave jobs to. mu is held.
func (b *block) evict() {
	if b.q.w.opt.AtMostOnce || !b.crowded() {
		return
	}
	keep := b.keeps()
	for _, l := range b.keyQueues {
		n := keep
		if b.standsStill(l) {
			n = 0
		}
		l.PutBack(n, b.skipReady)
	}
	most := b.fill()
	if len(b.seen) >= 100*b.q.w.opt.Batch { // many kinds with a few jobs each
		most = min(most, 50*b.q.w.opt.Batch/max(1, len(b.aside)))
	}
	for g, s := range b.aside {
		if s.Len() < most || b.q.opens(g) && !b.q.w.choice.perCaller {
			continue
		}
		keep := most / 2
		s.RemoveFunc(func(d *Delivery) bool {
			if keep--; keep >= 0 || d.from != tableReady && !b.leavesDelayed(d, g) || !b.makesWay(d, g) {
				return false
			}
			if d.from == tableDelayed {
				delete(b.seen, d.ID)
				b.weigh(d, 0)
				return true
			}
			if b.skipped == nil {
				b.skipped = map[*limit.Limiter]int64{}
			}
			b.skipped[g] = least(b.skipped[g], d.ID)
			b.skip(d)
			return true
		})
	}
}

// skipReady leaves a ready job of a key to a later read.
func (b *block) skipReady(d *Delivery) bool {
	if d.from != tableReady {
		return false
	}
	b.skip(d)
	return true
}

// makesWay takes a job that waits for a limit out of its key queue, with those behind it. It
// returns false if the job has to stay, because others of its key have begun with it, or its
// trial is not over.
func (b *block) makesWay(d *Delivery, g *limit.Limiter) bool {
	l := b.keyQueues[d.line()]
	switch {
	case d.line() == "":
		return true
	case l == nil || d.trial.why != trusted || !l.GiveWay(d.ID, b.skipReady):
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
func (b *block) keeps() int {
	lines := 0
	for _, l := range b.keyQueues {
		if l.Len() > 0 {
			lines++
		}
	}
	return max(1, 50*b.q.w.opt.Batch/max(1, lines))
}

// fill returns how many jobs are set aside for a limit before some are put back.
func (b *block) fill() int { return 20 * b.q.w.opt.Batch }

// stands reports whether the jobs of a key wait for one that will not end soon: it is
// elsewhere, was checked out because it runs for long, or its end is refused. mu is held.
func (b *block) standsStill(l *keyQueue) bool {
	t, held := l.Holder()
	return held && (t.Away || b.q.w.out[store.JobID{BlockID: b.at(), ID: t.ID}] != nil || b.bars(l.key))
}

// skips reports whether a job that was read stays in its table because it is behind some that
// were put back. Once the key moves again, the first job returned by a read that began before
// them is the key's next one. mu is held.
func (b *block) skips(d *Delivery, r board.Read) bool {
	if b.seen[d.ID] != nil {
		return false
	}
	if d.line() == "" {
		g := b.q.barrierOf(d.Kind)
		if b.skipped[g] == 0 {
			return false
		}
		b.skipped[g] = least(b.skipped[g], d.ID)
		b.skip(d)
		return true
	}
	l := b.keyQueues[d.line()]
	if l == nil || l.Skipped() == 0 {
		return false
	}
	if l.Skips(d.ID, r.After[d.Priority], b.needs(l)) {
		b.skip(d)
		return true
	}
	if l.Skipped() == 0 {
		l.limiter = nil
	}
	return false
}

// skip records that a job stays in its table.
func (b *block) skip(d *Delivery) {
	delete(b.seen, d.ID)
	b.weigh(d, 0)
	b.reads.Pass(d.Priority, d.ID)
}

// needs reports whether to read the jobs of a key that were put back: few are left of it, and
// it does not stand still. mu is held.
func (b *block) needs(l *keyQueue) bool {
	return l.Wants(b.q.w.opt.Batch/2+1) && !b.standsStill(l) && (l.limiter == nil || b.skipped[l.limiter] == 0)
}

// resume schedules a read of the jobs of a key that were put back, now that few are left. mu is
// held.
func (b *block) resume(l *keyQueue) {
	if !l.resumed {
		l.resumed, b.resumed = true, append(b.resumed, l)
	}
	if l.Skipped() > b.reads.ReadUpto() {
		b.reads.Back()
	}
	b.q.w.enlist(b)
}

// rereads returns the first job below the horizon that was put back and that a key needs; 0:
// there is none. mu is held.
func (b *block) rereads() (first int64) {
	for _, l := range b.resumed {
		if l.Skipped() <= b.reads.ReadUpto() && b.needs(l) {
			first = least(first, l.Skipped())
		}
	}
	return first
}

// keepWanted returns the jobs to take from such a read: those of keys that need some, up to
// where all priorities have been returned.
func (b *block) keepWanted(r board.Read, rows []*Delivery) []*Delivery {
	upto := r.Upto
	var read [Idle + 1]int
	var last [Idle + 1]int64
	for _, d := range rows {
		read[d.Priority]++
		last[d.Priority] = max(last[d.Priority], d.ID)
	}
	for p := range read {
		if read[p] >= r.Limit {
			upto = min(upto, last[p])
		}
	}
	from := map[*keyQueue]int64{}
	for _, l := range b.resumed {
		if l.Skipped() > r.After[Normal] && l.Skipped() <= upto && b.needs(l) {
			from[l], l.limiter = l.Skipped(), nil
			l.SkipFrom(upto + 1)
		}
	}
	return slices.DeleteFunc(rows, func(d *Delivery) bool {
		first, is := from[b.keyQueues[d.line()]]
		return !is || d.line() == "" || d.ID < first || d.ID > upto || b.seen[d.ID] != nil
	})
}

// resumeOf schedules a read of the jobs of a kind that were put back, once few are left that
// wait for the limit. mu is held.
func (b *block) resumeOf(g *limit.Limiter) {
	if first := b.skipped[g]; first != 0 && b.aside[g].Len() < b.fill()/4 {
		delete(b.skipped, g)
		b.readFrom(first)
	}
}

// readFrom schedules another read of the block from an id on.
func (b *block) readFrom(id int64) {
	b.reads.From(id)
	b.q.w.enlist(b)
}

// hasReadAgain releases keys whose jobs were to be read again: a complete read has returned all
// that exist.
func (b *block) hasReadAgain(r board.Read) {
	goes := func(l *keyQueue) bool {
		if b.needs(l) {
			if r.Back || b.reads.Full || slices.Max(r.After[1:]) >= l.Skipped() {
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
	if r.Back || b.reads.Full {
		return
	}
	for g, lines := range b.gated {
		if b.skipped[g] != 0 {
			continue
		}
		if b.gated[g] = slices.DeleteFunc(lines, goes); len(b.gated[g]) == 0 {
			delete(b.gated, g)
		}
	}
}

// least is the lesser of two ids, of which the first may be 0: none.
func least(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}
