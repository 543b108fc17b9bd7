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
	"slices"
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
	// bellsAge is how old what a process knows of others' bells may be. If it knows of none at a
	// queue that has new jobs it looks again sooner: after unknownAge, and up to mostUnknownAge
	// while there is none.
	bellsAge       = 2 * time.Second
	unknownAge     = 20 * time.Millisecond
	mostUnknownAge = 500 * time.Millisecond

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

// CheckDoorbell returns an error that matches [ErrInvalid] if no worker could hear a doorbell at an
// address: see [Options].
func CheckDoorbell(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return invalid("doorbell", "%q: write an address of this host and a port, such as 10.0.0.7:0; port 0 is any", address)
	}
	if at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
		return invalid("doorbell", "%q: other processes connect to this address, so they must be able to reach it", address)
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
		w.log.Warn("no doorbell: new jobs of other processes are found by polling", "err", err)
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
	again time.Duration   // after so long it looks for the bells of a queue that it knows none of
	stale bool            // a bell is not there any more
	lines map[netip.AddrPort]net.Conn
}

// known lists the doorbells of others, as they were a moment ago, to ring those of the queues that
// payloads are for. mu is held.
func (r *ringer) known(ctx context.Context, db *dialect.DB, payloads map[int]string) ([]peer, error) {
	age := bellsAge
	if r.lacks(payloads) {
		age = r.again
	}
	if r.read != 0 && since(r.read) < age && !r.stale {
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
	if err != nil {
		return nil, err
	}
	r.peers, r.read, r.stale = peers, at, false
	if r.again = min(2*r.again, mostUnknownAge); r.again == 0 || !r.lacks(payloads) {
		r.again = unknownAge
	}
	r.hangUp(func(at netip.AddrPort) bool {
		return !slices.ContainsFunc(peers, func(p peer) bool { return p.at == at })
	})
	return peers, nil
}

// lacks reports whether no bell is known at a queue that a payload is for.
func (r *ringer) lacks(payloads map[int]string) bool {
	for queue := range payloads {
		if queue != 0 && !slices.ContainsFunc(r.peers, func(p peer) bool { return p.queue == queue && p.key != nil }) {
			return true
		}
	}
	return false
}

// ring sends payloads by queue to whoever works on it; those of queue 0 to everybody. Where a bell
// is not there any more, such as after a restart, others may be: it looks once more.
func (r *ringer) ring(ctx context.Context, db *dialect.DB, payloads map[int]string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.ringOnce(ctx, db, payloads)
	if r.stale {
		err = r.ringOnce(ctx, db, payloads)
	}
	return err
}

func (r *ringer) ringOnce(ctx context.Context, db *dialect.DB, payloads map[int]string) error {
	peers, err := r.known(ctx, db, payloads)
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
			err = errors.Join(err, r.send(ctx, p, payload))
		}
	}
	return err
}

// send sends one datagram. The line to a bell is kept: the host where nobody hears it any more says
// so, and the next datagram fails.
func (r *ringer) send(ctx context.Context, p peer, payload string) error {
	line := r.lines[p.at]
	if line == nil {
		var err error
		if line, err = (&net.Dialer{}).DialContext(ctx, "udp", p.at.String()); err != nil {
			return err
		}
		if r.lines == nil {
			r.lines = map[netip.AddrPort]net.Conn{}
		}
		r.lines[p.at] = line
	}
	_, err := line.Write(sign(p.key, payload))
	if err != nil {
		r.stale = true
		r.hangUp(func(at netip.AddrPort) bool { return at == p.at })
	}
	return err
}

// hangUp closes lines.
func (r *ringer) hangUp(which func(netip.AddrPort) bool) {
	for at, line := range r.lines {
		if which(at) {
			_ = line.Close()
			delete(r.lines, at)
		}
	}
}
