package queue

import (
	"net"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/bell"
)

// How a worker hears its doorbell: see package bell.

const bellKeyBytes = 32

// A doorbell is the socket on which a worker hears of new jobs.
type doorbell struct {
	conn net.PacketConn
	at   string
	key  []byte
	hung instant.Instant
}

// hearing reports whether bells currently tell this worker what others do. mu is held.
func (h *holder) hearing() bool {
	if h.bell != nil { // others know of the doorbell once they have read its row
		return since(h.bell.hung) > 2*bell.Age
	}
	return h.db.Dialect.Listen != nil && h.hears != 0 && since(h.hears) < heardFor
}

// ring reports that a block may have new jobs.
func (h *holder) ring(queue, divided int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.queues {
		if q.id == queue {
			h.rouse(q.blocks[divided])
		}
	}
}

func (h *holder) ringAll(queue int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.queues {
		if q.id == queue {
			for _, b := range q.blocks {
				h.rouse(b)
			}
		}
	}
}

// ringFrom reports that jobs were committed late, from an id on.
func (h *holder) ringFrom(queue int, id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.queues {
		if q.id == queue {
			for _, b := range q.blocks {
				b.ReadFrom(id)
			}
		}
	}
}

func (h *holder) ringRows(rows []jobRow) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.queues {
		for i := range rows {
			r := &rows[i]
			if r.queue != q.id {
				continue
			}
			b := q.blocks[r.divided]
			if b != nil && r.runAt != 0 {
				h.setDue(b, r.runAt)
				continue
			}
			h.rouse(b)
		}
	}
}

// notified records that something was heard.
func (h *holder) notified(at instant.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hears = at
}

// relistened makes the worker look into all queues.
func (h *holder) relistened() {
	h.tellRounds()
	h.lookSoon()
}
