package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Refusals. A database may refuse to record a job's outcome for a reason specific to that job: a
// trigger, a CHECK, a key that another row has, a missing right. Workers write many outcomes at
// once, so one such job would make them all fail, again and again. So would a job whose row a stranger's
// transaction holds: whoever writes for all jobs waits a second for it, and then counts that as refused.
//
// A refused batch is halved until the jobs are known that are refused by themselves. The others
// end. A refused job is set aside in its block: its outcome is tried again alone, after half a
// second and up to 15 seconds, for as long as the worker has the block. Its key stays held, and
// whatever has ended of its key after it waits behind it, because the outcomes of a key are
// committed in order. Everything else of the block continues.
//
//   - A running job whose check-out is refused continues in place. Its block cannot be handed over
//     meanwhile.
//   - A job on trial that has to be checked out before it begins waits: if it crashed its worker
//     without a row that says so, it would crash them all.
//   - A job that is to be removed before it begins (AtMostOnce) does not begin. Its row stays, as
//     do those of the later jobs of its key, which are read again when it is gone.
//
// A worker that has set aside maxRefused jobs of a block reads no more of it: so many refusals
// have a cause beyond single jobs, and others would do the finished work again.

const (
	firstRefused = 500 * time.Millisecond // until a refused job is tried again
	lastRefused  = 15 * time.Second

	maxRefused = store.Chunk // jobs of a block that are set aside
	maxAgain   = 8           // jobs tried again per round
	maxLogged  = 100         // jobs of a worker that are logged individually
)

// refuses reports whether err says that the same would be refused again, for a reason that may lie
// in a single job: a stranger's transaction may hold its row. A worker that does everything itself leaves
// that to its caller.
func (k *core) refuses(err error) bool {
	held := k.db.Dialect.LockTimeout
	return !k.alone && err != nil && (refuses(k.db.Dialect, err) || held != nil && held(err))
}

func refuses(d *sqlrun.Dialect, err error) bool {
	return err != nil && !errors.Is(err, errBlockLost) && !d.Retryable(err) && !d.Unavailable(err) &&
		(d.Refused(err) || errors.Is(err, sqlrun.ErrTooLong) || errors.Is(err, store.ErrShort))
}

// A refusal describes a job whose end, check-out or claim is refused. The worker's mutex guards
// it.
type refusal struct {
	block.Refusal
	moves bool // to another block: see forward
	tries int

	told    instant.Instant  // when its row was written; 0: never
	untold  int              // tries since then
	node    string           // the worker's name in it
	trouble *trouble.Trouble // nil: too many are logged
}

// d returns the job.
func (r *refusal) d() *Delivery { return deliveryOf(r.Job) }

// move returns what is refused; nil: the job is done.
func (r *refusal) move() *move {
	m, _ := r.Move.(*move)
	return m
}

// what names the refused step.
func (r *refusal) what() string {
	switch {
	case r.moves:
		return "forward"
	case r.Consumes:
		return "claim"
	case r.Out():
		return "check-out"
	case r.Move == nil && r.d().discarded():
		return "discarded"
	case r.Move == nil:
		return "done"
	case r.move().verdict == buried:
		return "dead"
	}
	return "retry"
}

// A refusedEnd is one refused step of a round.
type refusedEnd struct {
	d        *Delivery
	move     *move
	consumes bool
	err      error // nil: it waits behind another job of its key
}

func keyOf(d *Delivery) string { return d.line() }
func keyOfMove(m *move) string { return m.d.line() }

// refuse records the refused steps of a round.
func (t *trip) refuse(x refusedEnd) {
	t.refused = append(t.refused, x)
	if x.d.line() != "" {
		if t.barred == nil {
			t.barred = map[string]bool{}
		}
		t.barred[x.d.line()] = true
	}
}

// ackAll deletes the jobs of a round that are done, except for those that are refused.
func (f *flusher) ackAll(ctx context.Context, t *trip) error {
	settled := map[*Delivery]bool{}
	s := sifter[*Delivery]{refuses: f.refuses, write: func(part []*Delivery) error {
		err := f.ackAlone(ctx, t, part)
		if err == nil {
			t.ended = append(t.ended, part...)
			for _, d := range part {
				settled[d] = true
			}
		}
		return err
	}, refuse: func(d *Delivery, err error) {
		settled[d] = true
		t.refuse(refusedEnd{d: d, err: err})
	}}
	err := s.write(t.acks)
	if f.refuses(err) {
		err = s.halve(byKey(t.acks, keyOf), err)
	}
	t.acks = slices.DeleteFunc(t.acks, func(d *Delivery) bool { return settled[d] })
	return err
}

// commitAllMoves writes the moves of a round, except for those that are refused. Ends go before
// check-outs, and those of a key that was refused a moment ago wait.
func (f *flusher) commitAllMoves(ctx context.Context, t *trip) error {
	settled := map[*Delivery]bool{}
	s := sifter[*move]{refuses: f.refuses, write: func(part []*move) error {
		err := f.commitMoves(ctx, t.b, t.node, part)
		if err == nil {
			t.moved = append(t.moved, part...)
			for _, m := range part {
				settled[m.d] = true
			}
		}
		return err
	}, refuse: func(m *move, err error) {
		settled[m.d] = true
		t.refuse(refusedEnd{d: m.d, move: m, err: err})
	}}
	var rest, ends, outs []*move
	for _, m := range t.moves {
		switch {
		case m.d.line() != "" && t.barred[m.d.line()]:
			s.refuse(m, nil)
			continue
		case m.out:
			outs = append(outs, m)
		default:
			ends = append(ends, m)
		}
		rest = append(rest, m)
	}
	var err error
	if len(rest) > 0 {
		err = s.write(rest)
	}
	if f.refuses(err) {
		if err = s.sift(byKey(ends, keyOfMove)); err == nil {
			s.whole = true // as in CompleteTx: a batch of a key is checked out together or not at all
			err = s.sift(byKey(outs, keyOfMove))
		}
	}
	t.moves = slices.DeleteFunc(t.moves, func(m *move) bool { return settled[m.d] })
	return err
}

// tryAgain tries the refused steps again, each by itself.
func (f *flusher) tryAgain(ctx context.Context, t *trip) error {
	for _, r := range t.plan.Again {
		d := deliveryOf(r.Job)
		m, _ := r.Move.(*move)
		var err error
		switch {
		case r.Consumes:
			var mine map[int64]bool
			if mine, err = f.consumePart(ctx, t, []*Delivery{d}); err == nil {
				t.consumed = append(t.consumed, d)
				t.mine = append(t.mine, mine[d.ID])
			}
		case m == nil:
			if err = f.ackExactly(ctx, t, []*Delivery{d}); err == nil {
				t.ended = append(t.ended, d)
			}
		default:
			if err = f.commitMoves(ctx, t.b, t.node, []*move{m}); err == nil {
				t.moved = append(t.moved, m)
			}
		}
		if f.refuses(err) {
			t.refuse(refusedEnd{d: d, move: m, consumes: r.Consumes, err: err})
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setAside records refused steps. mu is held.
func (box *outbox) setAside(x refusedEnd) {
	d, b := x.d, x.d.b
	out := x.move != nil && x.move.out
	switch {
	case out && d.began != 0:
		box.goOnInPlace(x)
		return
	case b.Gone && d.state.From != tableRunning: // the block's present holder runs it again
		if x.move != nil {
			box.runs.undone([]*move{x.move})
		} else if !x.consumes {
			box.conclude(d, box.c.clock.reading(), lost, ErrLost, 0)
		}
		return
	}
	r := box.book.noteRefused(x)
	b.SetAside(&r.Refusal)
	switch {
	case out:
		d.state.Row = block.RowFree
		box.h.occupants.parkAtLimit(&d.state)
	case !x.consumes:
		b.Unweigh(&d.state)
		tellWaiter(d, fmt.Errorf("%w: %s", ErrRefused, r.why()))
	}
	if box.life.closing {
		r.Final = true
		if b.Gone {
			box.forsake(b)
		}
	}
}

// noteRefused records that something of a job is refused. mu is held.
func (book *refusalBook) noteRefused(x refusedEnd) *refusal {
	d := x.d
	r := d.refusal
	if r == nil {
		r = &refusal{Refusal: block.Refusal{Job: &d.state}}
		d.refusal = r
	}
	if r.Consumes, r.Move = x.consumes, nil; x.move != nil {
		r.Move = x.move
	}
	if x.err != nil {
		book.refuseAgain(r, x.err)
	}
	return r
}

// refuseAgain records that something was tried and refused. mu is held.
func (book *refusalBook) refuseAgain(r *refusal, err error) {
	r.Err = err
	r.tries++
	r.Next = instant.Now().Add(min(firstRefused<<min(r.tries-1, 8), lastRefused))
	book.noteRefusal(r)
}

// why returns why a job waits for its end.
func (r *refusal) why() string {
	if r.Err != nil {
		return r.Err.Error()
	}
	return "an earlier job of its key is refused"
}

// goOnInPlace lets a running job continue in place, because its check-out is refused, or would
// overtake a refused end of its key. mu is held.
func (box *outbox) goOnInPlace(x refusedEnd) {
	d := x.d
	d.inPlaceUntil = instant.Now().Add(firstRefused)
	if x.err != nil {
		d.inPlaceUntil = box.book.noteRefused(x).Next
	}
	box.runs.freed(d)
	box.h.enlist(d.b)
}

// mayLeave reports whether refusals permit checking out a running job: if it left while the end
// of an earlier job of its key is refused, whoever takes over would begin it before that one.
// mu is held.
func (b *tenure) mayLeave(d *Delivery, at instant.Instant) bool {
	return at >= d.inPlaceUntil && !b.Bars(d.line())
}

// recordConsumed records successful claims of jobs that had been refused. mu is held.
func (box *outbox) recordConsumed(t *trip) {
	for i, d := range t.consumed {
		box.relieve(d)
		if t.mine[i] {
			box.ends.noteEnd(d.Group)
			t.b.Add(&d.state)
		}
	}
	if len(t.consumed) > 0 {
		t.b.Settle()
		box.h.occupants.offer(t.b, len(t.consumed))
	}
}

// relieve records that nothing of a job is refused any more. What waits behind it is tried next. mu
// is held.
func (box *outbox) relieve(d *Delivery) {
	r, b := d.refusal, d.b
	if r == nil {
		return
	}
	d.refusal = nil
	box.book.forgetRefusal(r)
	b.Relieve(&r.Refusal)
}

// forsake gives up what is set aside of a block that no longer belongs to this worker, except for the
// ends of jobs that have rows of their own, unless the worker is being stopped. mu is held.
func (box *outbox) forsake(b *tenure) {
	for _, r := range slices.Clone(b.Refusals) {
		d := deliveryOf(r.Job)
		switch {
		case r.Consumes || r.Out(): // it has not begun
			box.relieve(d)
		case d.state.From == tableRunning && !box.life.closing:
		default:
			if d.state.From == tableRunning {
				box.toHand = append(box.toHand, d)
			}
			box.log.Warn("the database still refuses to record a job's outcome; the job will be done again",
				"queue", d.Queue, "block", b.divided, "kind", d.Kind, "id", d.ID, "error", d.refusal.why())
			box.conclude(d, box.c.clock.reading(), lost, ErrLost, 0)
		}
	}
	if len(b.Refusals) > 0 {
		box.remnants[b] = true
	}
	for id := range box.book.stuck[b] {
		box.unstick(b, id)
	}
}

// stick records that a delayed job cannot be moved to another block. mu is held.
func (book *refusalBook) stick(b *tenure, row *laterRow, err error) {
	r := book.stuck[b][row.id]
	if r == nil {
		d := &Delivery{Job: Job{Queue: b.q.name, Kind: row.kind}, ID: row.id}
		d.comesFrom(b)
		r = &refusal{Refusal: block.Refusal{Job: &d.state}, moves: true}
		if book.stuck[b] == nil {
			book.stuck[b] = map[int64]*refusal{}
		}
		book.stuck[b][row.id] = r
		b.stuck = len(book.stuck[b])
	}
	book.refuseAgain(r, err)
}

// unstick records that it was moved, or is not to be. mu is held.
func (box *outbox) unstick(b *tenure, id int64) {
	all := box.book.stuck[b]
	if r := all[id]; r != nil {
		delete(all, id)
		if b.stuck = len(all); b.stuck == 0 {
			delete(box.book.stuck, b)
		}
		box.book.forgetRefusal(r)
	}
}

// tryFinally schedules one more try of everything that is set aside, because the worker is being
// stopped. mu is held.
func (box *outbox) tryFinally(b *tenure) {
	for _, r := range b.Refusals {
		r.Next = 0
	}
	b.q.h.enlist(b)
}
