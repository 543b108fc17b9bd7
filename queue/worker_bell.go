package queue

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/datagram"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/bell"
)

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

// answer reads the doorbell until ctx ends.
func (w *Worker) answer(ctx context.Context, d *doorbell) {
	defer context.AfterFunc(ctx, func() { _ = d.conn.SetReadDeadline(time.Unix(0, 1)) })()
	packet := make([]byte, bell.LongestPacket+1)
	for ctx.Err() == nil {
		n, _, err := d.conn.ReadFrom(packet)
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

// hang opens a doorbell, if the client has an address and the engine has no notifications.
func (w *Worker) hang(ctx context.Context) *doorbell {
	if !w.c.bells.rings() {
		return nil
	}
	conn, err := datagram.Net().Listen(ctx, w.c.opt.Doorbell)
	if err != nil {
		w.log.Warn("no doorbell: new jobs of other processes are found by polling", "err", err)
		return nil
	}
	key := make([]byte, bellKeyBytes)
	_, _ = rand.Read(key) // never fails
	return &doorbell{conn: conn, at: conn.LocalAddr().String(), key: key, hung: instant.Now()}
}
