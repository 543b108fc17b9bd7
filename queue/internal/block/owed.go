package block

import (
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Owed is what a block owes to the database: outcomes that are not committed, and steps that were refused.
type Owed struct {
	Acks     []*Job     // finished, to be deleted
	sent     []*Job     // acks that a flusher is writing
	Moves    []Move     // to be moved to another table, in order
	Missed   []HeldKey  // jobs whose rows were gone: their lines go on if the block is still this worker's
	Refusals []*Refusal // steps that the database refuses, in order
	Withheld int        // acks that transactions of handlers write: see Withhold
}

// A Move takes a job from its table to another.
type Move interface {
	Of() *Job
	Out() bool // to the running ones
}

// MaxRefused is how many steps of a block are set aside before no more of it is read.
const MaxRefused = store.Chunk

// maxAgain is how many refused steps a trip tries again.
const maxAgain = 8

// A Refusal is a step of a job that the database refuses, or that waits behind one of its line.
type Refusal struct {
	Job      *Job
	Move     Move            // nil: the job is done
	Consumes bool            // it is to be removed before it begins
	Err      error           // nil: not tried, since another job of its line is refused
	Next     instant.Instant // when it is tried again
	Paused   int             // handlers' transactions that write it: see Withhold
	Final    bool            // tried since the worker began to stop
}

// Out reports whether the step is a check-out.
func (r *Refusal) Out() bool { return r.Move != nil && r.Move.Out() }

// settled reports whether no outcome waits to be written, except for refused ones.
func (b *Block) settled() bool { return len(b.Acks) == 0 && b.Withheld == 0 && len(b.Moves) == 0 }

// SetAside keeps a refused step, and the line of its job: behind those that were refused before, and ahead
// of all that have not ended.
func (b *Block) SetAside(r *Refusal) {
	if slices.Contains(b.Refusals, r) {
		return
	}
	if r.Job.Line != "" && !r.Consumes && !b.Gone {
		b.keyQueue(r.Job.Line).HoldBehind(r.Job.ID, func(id int64) bool {
			return slices.ContainsFunc(b.Refusals, func(o *Refusal) bool { return o.Job.ID == id })
		})
	}
	b.Refusals = append(b.Refusals, r)
}

// Relieve forgets a refusal: the step was made, or given up. Rows behind one that was to be removed were skipped, so they
// are read again.
func (b *Block) Relieve(r *Refusal) {
	b.Refusals = slices.DeleteFunc(b.Refusals, func(o *Refusal) bool { return o == r })
	if r.Consumes && r.Job.Line != "" {
		b.Reads.Anew()
		b.Dues.Anew()
	}
	b.host.Owes()
}

// Bars reports whether something of a line is set aside.
func (b *Block) Bars(line string) bool {
	return line != "" && slices.ContainsFunc(b.Refusals, func(r *Refusal) bool { return r.Job.Line == line })
}

// retries lists the steps set aside that are due now: the first of each line. A row is removed before its job
// begins only where jobs may be read.
func (b *Block) retries(now Now) (all []*Refusal) {
	had := map[string]bool{}
	for _, r := range b.Refusals {
		first := r.Job.Line == "" || !had[r.Job.Line]
		had[r.Job.Line] = true
		may := !r.Consumes || b.Open() && now.Leased
		if first && may && r.Next <= now.At && r.Paused == 0 && len(all) < maxAgain {
			all = append(all, r)
		}
	}
	return all
}

// Unended reports whether ends of the block's jobs are set aside: if it were handed over, these
// jobs would run again. A worker that is being stopped (closing) hands it over all the same after one more try.
func (b *Block) Unended(closing bool) bool {
	return slices.ContainsFunc(b.Refusals, func(r *Refusal) bool {
		return !r.Consumes && !r.Out() && r.Job.From != store.AmongRunning && (!closing || r.Err != nil && !r.Final)
	})
}

// Withhold returns the jobs of a job's line that have ended here and are not deleted yet, for a transaction
// of its handler that completes it: those that no trip gets until [Block.HandBack], those that one is writing, and refusals
// that no trip tries again until then.
//
// A line is released when its job ends, before that is committed. If the transaction
// committed before that, a crash in between would have the earlier job run again after
// its effects. So the transaction deletes the earlier jobs, too. It does not wait for
// the flusher, which may need the connection that the transaction has.
//
// A flusher that got these acks would wait for the transaction's
// locks. The acks that it has sent already are deleted by whichever comes first.
func (b *Block) Withhold(j *Job) (taken, sent []*Job, paused []*Refusal) {
	if j.Line == "" {
		return nil, nil, nil
	}
	before := func(o *Job) bool { return o.Line == j.Line && o.Tx != TxCompleted }
	var rest []*Job
	for _, o := range b.Acks {
		if before(o) {
			taken = append(taken, o)
		} else {
			rest = append(rest, o)
		}
	}
	b.Acks, b.Withheld = rest, b.Withheld+len(taken)
	for _, o := range b.sent {
		if before(o) {
			sent = append(sent, o)
		}
	}
	for _, r := range b.Refusals { // which would fail it, unless it is no longer refused
		if r.Move == nil && !r.Consumes && before(r.Job) && r.Job != j {
			r.Paused++
			paused = append(paused, r)
		}
	}
	return taken, sent, paused
}

// HandBack gives trips what was withheld from them: if the transaction has
// committed (done), they find nothing left to delete.
func (b *Block) HandBack(taken []*Job, paused []*Refusal, done bool) {
	for _, r := range paused {
		if r.Paused--; done {
			r.Next = 0
		}
	}
	if len(taken) == 0 {
		return
	}
	b.Acks = append(b.Acks, taken...)
	b.Withheld -= len(taken)
	b.host.Owes()
}

// Finish records that a job is done: its row is to be deleted.
func (b *Block) Finish(j *Job) {
	b.Acks = append(b.Acks, j)
	b.Weigh(j)
}

// Move records that a job is to be moved to another table.
func (b *Block) Move(m Move) {
	b.Moves = append(b.Moves, m)
	if !m.Out() {
		b.Weigh(m.Of())
	}
}

// KeepIn takes back the check-out of a job that no trip has taken, and reports whether there was one.
func (b *Block) KeepIn(j *Job) bool {
	at := slices.IndexFunc(b.Moves, func(m Move) bool { return m.Of() == j && m.Out() })
	if at < 0 || j.Row != RowLeaving {
		return false
	}
	b.Moves = slices.Delete(b.Moves, at, at+1)
	j.Row = RowFree
	return true
}

// Deleted records that a job's row was deleted: by this worker's trip, or by somebody else if it was not there. held says
// that its line has waited for that.
func (b *Block) Deleted(j *Job, held, there bool) {
	b.forget = append(b.forget, j.ID)
	switch {
	case held && there && !b.Gone:
		b.Release(j.Line, j.ID)
	case held && !there:
		b.ReleaseIfHeld(j.Line, j.ID)
	}
	b.Spare(j)
}

// Forget schedules the removal of an id from those that were seen: this trip has taken its row out of the block.
func (b *Block) Forget(id int64) { b.forget = append(b.forget, id) }

// ForgetSoon does so for a job that another process has ended at an
// unknown time. A read under way may have begun before that, and return the row.
func (b *Block) ForgetSoon(id int64) {
	if b.Serving {
		b.lost = append(b.lost, id)
		b.Reads.Ring()
		return
	}
	b.Forget(id)         // not at once: what a trip that has just ended has read is taken in after that
	b.Reads.Dirty = true // so that there is another one
}

// ForgetNow forgets a job whose row was deleted before it began.
func (b *Block) ForgetNow(id int64) { delete(b.seen, id) }

// IsDue records that delayed jobs may be due.
func (b *Block) IsDue() { b.Dues.Ripe = true }

// TakeBack gives the block what a failed trip has not written, for the next one.
func (b *Block) TakeBack(acks []*Job, moves []Move, gone []HeldKey) {
	b.Acks, b.Moves, b.Missed = append(acks, b.Acks...), append(moves, b.Moves...), append(gone, b.Missed...)
}
