package bell

import (
	"context"
	"crypto/hmac"
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
	"github.com/dbcron/dbcron/internal/datagram"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Doorbells. Where an engine has no notifications, a process with news sends each worker of the
// queue a datagram, which says only which queues and blocks to look at. It is signed with a key
// that the worker has stored beside its address, in its row of node: so those who can read the
// tables can ring, and nobody else. A datagram that is lost or sent twice costs a wait for the
// next poll, or a needless look.

const (
	// Age is how long a process relies on what it has read of others' doorbells. If it knows of
	// none at a queue with new jobs it reads again sooner: after unknownAge at first, and up to
	// maxUnknownAge while there is none.
	Age           = 2 * time.Second
	unknownAge    = 20 * time.Millisecond
	maxUnknownAge = 500 * time.Millisecond

	// LongestPacket is the maximum size of a datagram in bytes: what passes every network
	// unfragmented.
	LongestPacket = 1200

	markSize = 16 // size of the truncated signature
)

// Sign prepends a signature to a payload.
func Sign(key []byte, payload string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(payload))
	return append(mac.Sum(nil)[:markSize], payload...)
}

// Unsign returns the payload of a signed packet, if the signature is right.
func Unsign(key, packet []byte) (payload string, ok bool) {
	if len(packet) < markSize || len(packet) > LongestPacket {
		return "", false
	}
	payload = string(packet[markSize:])
	return payload, hmac.Equal(packet, Sign(key, payload))
}

// A peer is another process's doorbell.
type peer struct {
	queue int
	at    netip.AddrPort
	key   []byte
}

// A Ringer sends to the doorbells of others.
type Ringer struct {
	once  sync.Once
	turn  chan struct{} // full: somebody rings, or reads whom to ring, which takes as long as the database does
	peers []peer
	read  instant.Instant // last reading; 0: never
	again time.Duration   // delay until it looks again for doorbells of a queue without any
	stale bool            // a known doorbell is gone
	lines map[netip.AddrPort]net.Conn
}

// take waits for the turn, as long as ctx lasts. end gives it to the next one.
func (r *Ringer) take(ctx context.Context) (end func(), err error) {
	r.once.Do(func() { r.turn = make(chan struct{}, 1) })
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Peers lists the addresses of others' doorbells, at most a moment old.
func (r *Ringer) Peers(ctx context.Context, db *dialect.DB) (all []string, err error) {
	end, err := r.take(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	peers, err := r.known(ctx, db, nil)
	for _, p := range peers {
		all = append(all, p.at.String())
	}
	return all, err
}

// Age sets when others' doorbells were last read, and after how long missing ones are looked
// for: for tests.
func (r *Ringer) Age(read instant.Instant, again time.Duration) {
	if end, err := r.take(context.Background()); err == nil {
		defer end()
		r.read, r.again = read, again
	}
}

// known lists others' doorbells, at most a moment old, in order to ring those of the queues in
// payloads. It is the caller's turn.
func (r *Ringer) known(ctx context.Context, db *dialect.DB, payloads map[int]string) ([]peer, error) {
	age := Age
	if r.lacks(payloads) {
		age = r.again
	}
	if r.read != 0 && instant.Now().Sub(r.read) < age && !r.stale {
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
			p.key = nil // the row was written by hand
		}
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	r.peers, r.read, r.stale = peers, at, false
	if r.again = min(2*r.again, maxUnknownAge); r.again == 0 || !r.lacks(payloads) {
		r.again = unknownAge
	}
	r.hangUp(func(at netip.AddrPort) bool {
		return !slices.ContainsFunc(peers, func(p peer) bool { return p.at == at })
	})
	return peers, nil
}

// lacks reports whether no doorbell is known at one of the payloads' queues.
func (r *Ringer) lacks(payloads map[int]string) bool {
	for queue := range payloads {
		if queue != 0 && !slices.ContainsFunc(r.peers, func(p peer) bool { return p.queue == queue && p.key != nil }) {
			return true
		}
	}
	return false
}

// Ring sends payloads, by queue, to those who work on the queue; those of queue 0 to everybody.
// If a doorbell is gone, such as after a restart, others may have come: Ring then reads them
// again.
func (r *Ringer) Ring(ctx context.Context, db *dialect.DB, payloads map[int]string) error {
	end, err := r.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = r.ringOnce(ctx, db, payloads)
	if r.stale {
		err = r.ringOnce(ctx, db, payloads)
	}
	return err
}

func (r *Ringer) ringOnce(ctx context.Context, db *dialect.DB, payloads map[int]string) error {
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
			err = errors.Join(err, r.send(ctx, db, p, payload))
		}
	}
	return err
}

// send sends one datagram. It keeps the connected socket: when nobody listens any more the
// peer's host says so, and the next datagram fails.
func (r *Ringer) send(ctx context.Context, db *dialect.DB, p peer, payload string) error {
	line := r.lines[p.at]
	if line == nil {
		var err error
		if line, err = datagram.Net().Dial(ctx, db.Pool(), p.at.String()); err != nil {
			return err
		}
		if r.lines == nil {
			r.lines = map[netip.AddrPort]net.Conn{}
		}
		r.lines[p.at] = line
	}
	_, err := line.Write(Sign(p.key, payload))
	if err != nil {
		r.stale = true
		r.hangUp(func(at netip.AddrPort) bool { return at == p.at })
	}
	return err
}

// hangUp closes sockets.
func (r *Ringer) hangUp(which func(netip.AddrPort) bool) {
	for at, line := range r.lines {
		if which(at) {
			_ = line.Close()
			delete(r.lines, at)
		}
	}
}
