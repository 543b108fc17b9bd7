package queue

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Doorbells. Where an engine has no notifications, a process that enqueues jobs sends the
// workers of their queues a datagram each, which says no more than which queues and blocks
// to look at. It is signed with a key that the worker has put beside its address, in its row
// of node: so who can read the tables can ring, and nobody else. A bell that is lost or sent
// twice costs a look, or a wait until workers look by themselves.

const (
	// bellsAge is how old what a process knows of others' bells may be.
	bellsAge = 2 * time.Second

	// mostRung is how many bytes are sent at the most: what goes through every network in
	// one piece.
	mostRung = 1200

	bellKeyBytes = 32
	bellMarkSize = 16 // of the signature, which is cut to that
)

// A doorbell is where a worker hears of new jobs.
type doorbell struct {
	conn *net.UDPConn
	at   string
	key  []byte
}

// checkDoorbell tells what is wrong with an address to hear the bell at.
func checkDoorbell(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return invalid("doorbell", "%q: write an address of this host and a port, such as 10.0.0.7:0; port 0 is any", address)
	}
	if at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
		return invalid("doorbell", "%q: others are told this address, so it must be one at which they reach this host", address)
	}
	return nil
}

// hang opens a doorbell, if the client has one and the engine does not notify.
func (w *Worker) hang(ctx context.Context) *doorbell {
	if !w.c.bells.rings() {
		return nil
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", w.c.opt.Doorbell)
	if err != nil {
		w.log.Warn("no doorbell: new jobs of other processes are found when it is time to look", "err", err)
		return nil
	}
	key := make([]byte, bellKeyBytes)
	_, _ = rand.Read(key) // never fails
	return &doorbell{conn: conn.(*net.UDPConn), at: conn.LocalAddr().String(), key: key}
}

// answer hears the bell until ctx ends.
func (w *Worker) answer(ctx context.Context, d *doorbell) {
	defer context.AfterFunc(ctx, func() { _ = d.conn.SetReadDeadline(time.Unix(0, 1)) })()
	packet := make([]byte, mostRung+1)
	for ctx.Err() == nil {
		n, _, err := d.conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			if ctx.Err() == nil { // such as the answer to a datagram that was not for this
				<-time.After(10 * time.Millisecond)
			}
			continue
		}
		payload, ok := unsign(d.key, packet[:n])
		switch {
		case !ok:
		case payload == "share":
			w.nudge()
			w.askAgain()
		default:
			w.heard(payload)
		}
	}
}

// sign puts a signature before a payload.
func sign(key []byte, payload string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(payload))
	return append(mac.Sum(nil)[:bellMarkSize], payload...)
}

func unsign(key, packet []byte) (payload string, ok bool) {
	if len(packet) < bellMarkSize || len(packet) > mostRung {
		return "", false
	}
	payload = string(packet[bellMarkSize:])
	return payload, hmac.Equal(packet, sign(key, payload))
}

// A peer is another process's doorbell.
type peer struct {
	queue int
	at    netip.AddrPort
	key   []byte
}

// A ringer rings the doorbells of others.
type ringer struct {
	mu    sync.Mutex
	peers []peer
	read  instant.Instant // 0: never
}

// known lists the doorbells of others, as they were a moment ago.
func (r *ringer) known(ctx context.Context, db *dialect.DB) ([]peer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read != 0 && since(r.read) < bellsAge {
		return r.peers, nil
	}
	at := instant.Now()
	peers, err := sqlrun.Select(ctx, &db.Session, store.ListBells, nil, func(rows *sql.Rows) (p peer, err error) {
		var at, key string
		if err = rows.Scan(&p.queue, &at, &key); err != nil {
			return p, err
		}
		var bad error
		if p.at, bad = netip.ParseAddrPort(at); bad == nil {
			p.key, bad = hex.DecodeString(key)
		}
		if bad != nil {
			p.key = nil // written by hand
		}
		return p, nil
	})
	if err == nil {
		r.peers, r.read = peers, at
	}
	return peers, err
}

// ring sends payloads by queue to whoever works on it; those of queue 0 to everybody.
func (r *ringer) ring(ctx context.Context, db *dialect.DB, payloads map[int]string) error {
	peers, err := r.known(ctx, db)
	if err != nil || len(peers) == 0 {
		return err
	}
	told := map[netip.AddrPort]bool{}
	for _, p := range peers {
		payload, ok := payloads[p.queue]
		if all, toAll := payloads[0]; toAll && !told[p.at] {
			payload, ok = all, true
		}
		if ok && p.key != nil {
			told[p.at] = true
			err = errors.Join(err, p.ring(ctx, payload))
		}
	}
	return err
}

// ring sends one datagram.
func (p *peer) ring(ctx context.Context, payload string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", p.at.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(sign(p.key, payload))
	return err
}
