package queue

import (
	"fmt"
	"slices"
	"time"
)

// When a worker dies, one of its jobs may have been the cause, and would end the
// next worker, too. So the jobs that it may have read are checked out before they
// start, a few at a time: what is found checked out by a worker that has died has
// been running then, and its crash is counted. After MaxCrashes the job is dead.
//
// A job that ends its worker the first time, not yet checked out, is checked out
// with that crash already counted; a job beside it, which was innocent, is done and
// forgotten, or is found there with one crash too many, and runs alone then, so
// that no innocent job dies.
//
// A worker whose jobs are harmless suspects none.

// doubtful is how many jobs under suspicion run at a time.
const doubtful = 8

// suspicion is how many jobs of a block are under suspicion when its worker, which
// read so many at a time, has died so many times in a row: as many as it may have
// read and not finished, and more each time.
func suspicion(reads, times int) int { return 2 * max(1, reads) << min(times-1, 10) }

// suspect checks out jobs under suspicion, if there is room. mu is held.
func (w *Worker) suspect(b *block) {
	for len(b.doubted) > 0 && w.doubt < doubtful && !b.gone && !b.leaving && !w.closing {
		d := b.doubted[0]
		b.doubted = b.doubted[1:]
		d.weight = 1
		w.doubt++
		w.checkOut(d, d.Crashes+1)
	}
}

// trustMore takes a job's share off the worker's doubt. What waits for that goes on.
// mu is held.
func (w *Worker) trustMore(d *Delivery) {
	if d.weight == 0 {
		return
	}
	w.doubt -= d.weight
	d.weight = 0
	for _, q := range w.queues {
		for _, b := range q.blocks {
			w.suspect(b)
		}
	}
}

// checkOut gives a job a row of its own, whether it runs or is about to. mu is held.
func (w *Worker) checkOut(d *Delivery, crashes int) {
	d.moving = true
	m := move{d: d, out: true, tries: d.Attempt, died: crashes}
	if d.began != 0 {
		m.later = -since(d.began)
	}
	d.b.moves = append(d.b.moves, m)
	w.enlist(d.b)
}

// keepIn takes the check-out of a job back, if it has not begun. mu is held.
func (w *Worker) keepIn(d *Delivery) {
	moves := d.b.moves
	at := slices.IndexFunc(moves, func(m move) bool { return m.d == d && m.out })
	if at >= 0 && d.moving {
		d.b.moves = slices.Delete(moves, at, at+1)
		d.moving = false
	}
}

// checkedOut takes in that a job has a row of its own: its block is free to go
// without it. mu is held.
func (w *Worker) checkedOut(m *move) {
	d, b := m.d, m.d.b
	d.moving = false
	b.forget = append(b.forget, d.ID)
	b.dirty = true
	switch {
	case m.here:
		w.goOn(d)
	case d.pinned: // deleted by its handler's transaction
	default: // deleted by somebody else
		d.ctx.end(fmt.Errorf("%w: its row is gone", ErrLost))
		if d.ending == nil && d.began == 0 {
			b.count--
			b.weigh(d, 0)
			d.ended = true
			w.trustMore(d)
			w.release(d)
		}
	}
	if e := d.ending; e != nil {
		d.ending = nil
		w.end(d, e.err, e.detail)
	}
	if b.leaving && b.idle() {
		w.nudge()
	}
}

// goOn goes on with a job that has a row of its own now. mu is held.
func (w *Worker) goOn(d *Delivery) {
	b := d.b
	d.from = tableRunning
	w.out[d.ID], w.rows[d.ID] = d, d
	if d.counted {
		d.counted = false
		b.active--
	}
	switch {
	case d.began != 0:
	case b.gone:
		w.forgo(d)
	default: // it was under suspicion, and may start now: it counts already
		b.ready.put(d)
		w.offer(b, 1)
	}
}

// undone takes back moves of a block that was lost. mu is held.
func (w *Worker) undone(moves []move) {
	for i := range moves {
		d := moves[i].d
		d.moving = false
		if moves[i].out {
			if e := d.ending; e != nil {
				d.ending = nil
				w.end(d, e.err, e.detail)
			} else if d.began == 0 {
				d.ended = true
				w.trustMore(d)
			}
			continue
		}
		if d.from == tableRunning { // which needs no block
			d.b.moves = append(d.b.moves, moves[i])
			continue
		}
		w.settled(d, ErrLost)
	}
}

// slow is how long a job runs before it is checked out, unless a test is in haste.
const slow = time.Second

func crashText(n int) string {
	return fmt.Sprintf("%d workers died while it was running", n)
}
