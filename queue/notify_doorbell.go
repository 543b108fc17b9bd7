package queue

import (
	"context"
	"crypto/rand"
	"net"
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
