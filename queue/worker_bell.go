package queue

import (
	"context"
	"crypto/rand"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/bell"
)

// How a worker hears its doorbell: see package bell.

const bellKeyBytes = 32

// A doorbell is the socket on which a worker hears of new jobs.
type doorbell struct {
	conn *net.UDPConn
	at   string
	key  []byte
	hung instant.Instant
}

// hang opens a doorbell, if the client has an address and the engine has no notifications.
func (w *Worker) hang(ctx context.Context) *doorbell {
	if !w.c.bells.rings() {
		return nil
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", w.c.opt.Doorbell)
	if err != nil {
		w.log.Warn("no doorbell: new jobs of other processes are found by polling", "err", err)
		return nil
	}
	key := make([]byte, bellKeyBytes)
	_, _ = rand.Read(key) // never fails
	return &doorbell{conn: conn.(*net.UDPConn), at: conn.LocalAddr().String(), key: key, hung: instant.Now()}
}

// answer reads the doorbell until ctx ends.
func (w *Worker) answer(ctx context.Context, d *doorbell) {
	defer context.AfterFunc(ctx, func() { _ = d.conn.SetReadDeadline(time.Unix(0, 1)) })()
	packet := make([]byte, bell.LongestPacket+1)
	for ctx.Err() == nil {
		n, _, err := d.conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			if ctx.Err() == nil { // such as an ICMP answer to an unrelated datagram
				<-time.After(10 * time.Millisecond)
			}
			continue
		}
		if payload, ok := bell.Unsign(d.key, packet[:n]); ok {
			w.heard(payload)
		}
	}
}

// hearing reports whether bells currently tell this worker what others do. mu is held.
func (w *Worker) hearing() bool {
	if w.bell != nil { // others know of the doorbell once they have read its row
		return since(w.bell.hung) > 2*bell.Age
	}
	return w.db.Dialect.Listen != nil && w.hears != 0 && since(w.hears) < heardFor
}

// heard makes a worker act on a message.
func (w *Worker) heard(payload string) {
	queues, shares := sharedQueues(payload)
	switch {
	case payload == bell.Ping:
	case shares:
		w.tellRounds(queues...)
		w.limits.AskAgain()
	case strings.HasPrefix(payload, bell.Ended):
		w.ends.heardEnds(bell.GroupIDs(payload))
	default:
		w.heardJobs(payload)
		signal(w.called) // whatever it waits for may be over
	}
}

// heardJobs rings the bells of the blocks named in a notification.
func (w *Worker) heardJobs(payload string) {
	for part := range strings.SplitSeq(payload, ";") {
		id, list, ok := strings.Cut(part, ":")
		queue, err := strconv.Atoi(id)
		if !ok || err != nil {
			continue
		}
		if list == "" {
			w.ringAll(queue)
			continue
		}
		if first, ok := bell.FromID(list); ok {
			w.ringFrom(queue, first)
			continue
		}
		for block := range strings.SplitSeq(list, ",") {
			if divided, err := strconv.Atoi(block); err == nil {
				w.ring(queue, divided)
			}
		}
	}
}

// sharedQueues returns the queues that a payload says may have blocks to share.
func sharedQueues(payload string) (queues []int, ok bool) {
	list := strings.Split(payload, ";")
	for _, text := range list[1:] {
		if id, err := strconv.Atoi(text); err == nil {
			queues = append(queues, id)
		}
	}
	return queues, list[0] == bell.Share
}

// ring reports that a block may have new jobs.
func (w *Worker) ring(queue, divided int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		if q.id == queue {
			w.rouse(q.blocks[divided])
		}
	}
}

func (w *Worker) ringAll(queue int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		if q.id == queue {
			for _, b := range q.blocks {
				w.rouse(b)
			}
		}
	}
}

// ringFrom reports that jobs were committed late, from an id on.
func (w *Worker) ringFrom(queue int, id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		if q.id == queue {
			for _, b := range q.blocks {
				b.ReadFrom(id)
			}
		}
	}
}

func (w *Worker) ringRows(rows []jobRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		for i := range rows {
			r := &rows[i]
			if r.queue != q.id {
				continue
			}
			b := q.blocks[r.divided]
			if b != nil && r.runAt != 0 {
				w.setDue(b, r.runAt)
				continue
			}
			w.rouse(b)
		}
	}
}

// notified records that something was heard.
func (w *Worker) notified(at instant.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hears = at
}

// relistened makes the worker look into all queues.
func (w *Worker) relistened() {
	w.tellRounds()
	w.lookSoon()
}
