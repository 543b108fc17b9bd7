package bench

import (
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// TestQueueFIFO prints how many jobs a second one worker does from a FIFO queue, whose jobs run one
// after the other, and from an ordinary one. The handler does nothing.
func TestQueueFIFO(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		p := newOurs(t, b, "dbcron", queue.WorkerOptions{})
		usual := drain(t, p, *jobs)
		each := newOurs(t, b, "dbcron, AckEach", queue.WorkerOptions{AckEach: true})
		if _, err := adminOf(p.c).Edit(t.Context(), "default", func(q *admin.Queue) { q.FIFO = true }); err != nil {
			t.Fatal(err)
		}
		pause(t, 5*time.Second) // until it takes effect
		report(t, b, "drain", []figure{
			{"dbcron", usual},
			{"dbcron, FIFO", drain(t, p, *jobs)},
			{"dbcron, FIFO, AckEach", drain(t, each, *jobs/20)},
		})
	})
}
