package queue

import (
	"cmp"
	"slices"
)

// A line is what of one key is here: one job at a time is out of it, the others wait
// in their order. It is guarded by its worker's mu.
type line struct {
	waiting []*Delivery
	holder  int64   // the id of the job that the others wait for; 0: none
	foreign bool    // which is not in this worker's hands: it is checked out elsewhere, or waits for its retry
	parted  int     // how often it has become so
	away    []int64 // further ones that were found elsewhere: they go before those that wait
	follow  []int64 // further ones that have begun with the holder, in one batch

	gathers *gathering // the batch that the holder waits for, and how many it may have
	most    int
}

// line returns the line of a key.
func (b *block) line(key string) *line {
	l := b.lines[key]
	if l == nil {
		l = &line{}
		b.lines[key] = l
	}
	return l
}

// wait lets a job that was read wait for its turn, unless the others wait for it: it
// is their retry.
func (b *block) wait(d *Delivery) {
	l := b.line(d.Key)
	if l.holder == d.ID {
		l.foreign = false
		b.admit(d)
		return
	}
	at, _ := slices.BinarySearchFunc(l.waiting, d, inOrder)
	l.waiting = slices.Insert(l.waiting, at, d)
	if g := l.gathers; g != nil && !g.full && l.fills() {
		g.full = true
		w := b.q.w
		w.handlerOf(g.jobs[0].Kind).full++ // d may be of another kind, which ends the batch
		w.work.Signal()
	}
}

// fills tells whether those that wait fill the batch of the holder, or another kind's job
// ends it.
func (l *line) fills() bool {
	kind := l.gathers.jobs[0].Kind
	n := 0
	for _, d := range l.waiting {
		if n++; n >= l.most-1 || d.Kind != kind {
			return true
		}
	}
	return l.most == 1
}

// next takes the first of those that wait, if it is of a kind and the holder's batch may
// have it: what is elsewhere goes before it.
func (l *line) next(kind string) *Delivery {
	if len(l.waiting) == 0 || l.foreign {
		return nil
	}
	d := l.waiting[0]
	if d.Kind != kind || d.from == tableRunning || len(l.away) > 0 && l.away[0] != d.ID {
		return nil
	}
	if len(l.away) > 0 {
		l.away = l.away[1:]
	}
	l.waiting = l.waiting[1:]
	l.follow = append(l.follow, d.ID)
	return d
}

// inOrder compares jobs of a key: by when they were enqueued, or when they are due.
func inOrder(a, b *Delivery) int {
	return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.ID, b.ID))
}

// settle lets the first of each line go that waits for nobody: called when all of a
// read has been added, so that its jobs are in order whatever order they came in.
func (b *block) settle() {
	for _, l := range b.lines {
		b.step(l)
	}
}

// step lets the next of a line go, if none of it is under way.
func (b *block) step(l *line) {
	if l.holder != 0 {
		return
	}
	if len(l.follow) > 0 {
		l.holder, l.foreign, l.follow = l.follow[0], false, l.follow[1:]
		return
	}
	at := 0
	if len(l.away) > 0 {
		l.holder, l.foreign, l.away = l.away[0], true, l.away[1:]
		at = slices.IndexFunc(l.waiting, func(d *Delivery) bool { return d.ID == l.holder })
	}
	if at < 0 || at >= len(l.waiting) {
		return
	}
	d := l.waiting[at]
	if at == 0 {
		l.waiting = l.waiting[1:]
	} else {
		l.waiting = slices.Delete(l.waiting, at, at+1)
	}
	l.holder, l.foreign = d.ID, false
	b.admit(d)
}

// release ends the turn of a key's job: the next may go.
func (b *block) release(key string, id int64) {
	l := b.lines[key]
	if l == nil {
		return
	}
	if l.holder != id {
		l.follow = slices.DeleteFunc(l.follow, func(o int64) bool { return o == id })
		return
	}
	l.holder, l.foreign, l.gathers = 0, false, nil
	if len(l.waiting) == 0 && len(l.away) == 0 && len(l.follow) == 0 {
		delete(b.lines, key)
		return
	}
	b.step(l)
}

// hold keeps a key's jobs back: one that is not here is running elsewhere, or waits
// for its retry. If several are, they go one after the other.
func (b *block) hold(key string, id int64) {
	l := b.line(key)
	switch {
	case l.holder == 0:
		l.holder, l.foreign = id, true
	case l.holder != id && !slices.Contains(l.away, id) && !slices.Contains(l.follow, id):
		l.away = append(l.away, id)
	}
}

// part notes that the job that the others wait for has left this worker's hands.
func (b *block) part(key string, id int64) {
	l := b.lines[key]
	switch {
	case l == nil:
	case l.holder == id:
		l.foreign = true
		l.parted++
	case slices.Contains(l.follow, id):
		l.follow = slices.DeleteFunc(l.follow, func(o int64) bool { return o == id })
		l.away = append(l.away, id)
	}
}

// turnOf tells whether a checked out job may be taken in: one that others of its key
// go before may not yet.
func (b *block) turnOf(key string, id int64) bool {
	if key == "" {
		return true
	}
	b.hold(key, id)
	return b.lines[key].holder == id
}

// takeIn notes that the job that the others wait for is in this worker's hands.
func (b *block) takeIn(key string, id int64) {
	if l := b.lines[key]; l != nil && l.holder == id {
		l.foreign = false
	}
}
