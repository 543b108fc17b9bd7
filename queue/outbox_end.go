package queue

import (
	"time"

	"github.com/dbcron/dbcron/queue/internal/block"
)

// conclude is the end of an attempt, for all who want to know of it: whoever waits for the outcome's fate,
// the receivers of events, the counts, and the job's group. what is the verdict that was committed with err
// and after; lost says that none is, since another worker does the job again, or has done it. The first call
// counts. mu is held.
func (box *outbox) conclude(d *Delivery, at reading, what verdict, err error, after time.Duration) {
	if d.state.Phase == block.PhaseWritten {
		return
	}
	if what == lost {
		box.settled(d, ErrLost)
	} else {
		box.settled(d, nil)
		box.tally.count(d, what, at)
	}
	if box.c.events.some.Load() && what != handed {
		box.c.events.tell(eventOf(d, what, err, after))
	}
	if box.c.bells.hub.Ends.Awaited() {
		box.c.bells.hub.Ends.Tell(d.ID)
	}
	switch what {
	case done, discard, buried, lost: // an answer that was lost may have ended it
		box.ends.noteEnd(d.Group)
	case failed, retryIn, snoozed, handed:
	}
}

// settled tells waiters that a job's outcome is committed, or will not be. mu is held.
func (box *outbox) settled(d *Delivery, err error) {
	if d.state.Phase == block.PhaseWritten {
		return
	}
	d.state.Phase = block.PhaseWritten
	if box.rows[d.at()] == d {
		delete(box.rows, d.at())
	}
	tellWaiter(d, err)
	box.relieve(d)
	box.runs.written(d)
}

// tellWaiter tells waiters what happened to a job's outcome. The first answer counts. mu is
// held.
func tellWaiter(d *Delivery, err error) {
	if d.told {
		return
	}
	d.told, d.fate = true, err
	if d.acked != nil {
		close(d.acked)
	}
}

// release lets the next job of a key begin. mu is held.
func (box *outbox) release(d *Delivery) {
	if d.line() == "" || d.b.Gone {
		return
	}
	d.b.Release(d.line(), d.ID)
	box.h.occupants.offer(d.b, 1)
}

// handBack gives the flusher the acks that were withheld for the job. mu is held.
func (d *Delivery) handBack() {
	if x := d.withheld; x != nil {
		d.b.HandBack(x.acks, x.paused, d.state.Tx == block.TxCompleted)
		d.withheld = nil
	}
}
