package queue

import "slices"

// A backlog is the jobs of a block that cannot begin yet: they wait behind one of their key
// that runs for long, runs elsewhere or waits for its retry, or for a limit of their kind. A
// block that is crowded with them puts them back: it forgets that it has read them, skips
// what it reads of them from there on, and goes on to the jobs behind them. When their turn
// comes, it reads again from the first one that it has put back, by lowering the horizon.
//
// So what is in memory stays bounded, and a key or a kind that stands still keeps nobody
// else from beginning. The price is that what was put back is read a second time.

// putBack makes room in a block that is crowded. Workers that delete rows before jobs are
// done have nothing to put back to. mu is held.
func (b *block) putBack() {
	if b.q.w.opt.AtMostOnce || !b.crowded() {
		return
	}
	for _, l := range b.lines {
		if b.stands(l) {
			l.waiting = slices.DeleteFunc(l.waiting, func(d *Delivery) bool {
				if d.from != tableReady || l.place(d.ID) >= 0 {
					return false
				}
				l.skipped = least(l.skipped, d.ID)
				b.skip(d)
				return true
			})
		}
	}
	for g, s := range b.aside {
		if s.len() < b.fill() || g.open() {
			continue
		}
		keep := b.fill() / 2
		for p := range s {
			s[p] = slices.DeleteFunc(s[p], func(d *Delivery) bool {
				if keep--; keep >= 0 || d.from != tableReady || d.Key != "" {
					return false
				}
				if b.skipped == nil {
					b.skipped = map[*gate]int64{}
				}
				b.skipped[g] = least(b.skipped[g], d.ID)
				b.skip(d)
				return true
			})
		}
	}
}

// fill is how many jobs are set aside for a limit before some are put back.
func (b *block) fill() int { return 20 * b.q.w.opt.Batch }

// stands tells whether the jobs of a line wait for one that is not soon to end: it is
// elsewhere, or checked out since it runs for long. mu is held.
func (b *block) stands(l *line) bool {
	p := l.holder()
	return p != nil && (p.foreign || b.q.w.out[jobID{b.at(), p.id}] != nil)
}

// skips tells whether a job stays in its table that a read has returned, since it is
// behind some that were put back. Once the line stands still no more, the first job that a
// read returns which began before them is the next one of the key. mu is held.
func (b *block) skips(d *Delivery, r reading) bool {
	if b.seen[d.ID] != nil {
		return false
	}
	if d.Key == "" {
		if b.skipped[b.q.gateOf(d.Kind)] == 0 {
			return false
		}
		b.skip(d)
		return true
	}
	l := b.lines[d.Key]
	if l == nil || l.skipped == 0 || d.ID < l.skipped {
		return false
	}
	if len(l.places) == 0 && r.after[d.Priority] < l.skipped {
		l.skipped = 0
		return false
	}
	b.skip(d)
	return true
}

// skip notes that a job stays in its table. Above the horizon, reads will return it again.
func (b *block) skip(d *Delivery) {
	delete(b.seen, d.ID)
	b.weigh(d, 0)
	if d.ID > b.horizon[d.Priority] {
		if b.passed == nil {
			b.passed = map[int64]int{}
		}
		b.passed[d.ID] = d.Priority
	}
}

// resume has the jobs of a line read that were put back, now that none of it is under way.
// mu is held.
func (b *block) resume(l *line) {
	b.readFrom(l.skipped)
	b.resumed = append(b.resumed, l)
}

// resumeOf has the jobs of a kind read that were put back, when so few are left that a
// limit keeps back. mu is held.
func (b *block) resumeOf(g *gate) {
	if first := b.skipped[g]; first != 0 && b.aside[g].len() < b.fill()/4 {
		delete(b.skipped, g)
		b.readFrom(first)
	}
}

// readFrom has a block read once more from an id on.
func (b *block) readFrom(id int64) {
	for p := range b.horizon {
		b.horizon[p] = min(b.horizon[p], id-1)
	}
	b.dirty, b.late = true, true
	b.q.w.enlist(b)
}

// hasReadAgain lets lines go whose jobs were to be read again: a read that was complete has
// returned those that are there.
func (b *block) hasReadAgain(r reading) {
	for id, p := range b.passed {
		if id <= b.horizon[p] {
			delete(b.passed, id)
		}
	}
	if b.full {
		return
	}
	b.resumed = slices.DeleteFunc(b.resumed, func(l *line) bool {
		if l.skipped != 0 && len(l.places) == 0 {
			if slices.Max(r.after[1:]) >= l.skipped {
				return false // it began behind them
			}
			l.skipped = 0
		}
		b.tidy(l)
		return true
	})
}

// least is the lesser of two ids, of which the first may be 0: none.
func least(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}
