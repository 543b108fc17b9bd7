package queue

import (
	"cmp"
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
)

var eventNames = map[verdict]string{
	done: EventDone, discard: EventDiscarded, failed: EventFailed, retryIn: EventFailed, snoozed: EventSnoozed,
	buried: EventDead, lost: EventLost,
}

// eventOf returns the event of an attempt that has ended with a verdict.
func eventOf(d *Delivery, what verdict, err error, after time.Duration) Event {
	event := Event{Job: d.Job, ID: d.ID, Attempt: d.Attempt, Outcome: eventNames[what], Err: asReturned(err), After: after}
	switch {
	case errors.Is(d.ctx.cause, errCancelled) && d.state.Tx != block.TxCompleted:
		event.Outcome, event.Err, event.After = EventCancelled, errCancelled, 0
	case what == done && d.discarded():
		event.Outcome, event.Err = EventDiscarded, errors.New(d.reason)
	case what == buried:
		event.After = 0
	}
	if d.began != 0 {
		event.Took = cmp.Or(d.stopped, instant.Now()).Sub(d.began)
	}
	return event
}
