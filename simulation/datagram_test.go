package simulation

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// A postman is the network through which doorbells are rung. Datagrams are under way for as long as round trips are, in an order
// that the gate decides, and are lost and doubled. Each process has an address of its own.
type postman struct {
	w     *World
	every int // one of so many is lost; 0: none

	mu    sync.Mutex
	bells map[string]*letterbox // by address
}

func newPostman(w *World) *postman {
	return &postman{w: w, bells: map[string]*letterbox{}}
}

// doorbell is the address at which a process hears of new jobs, if the seed has them do so; "": only by polling.
func (p *Process) doorbell() string {
	if p.w.Knob("bells", 0, 0, 1) == 0 {
		return ""
	}
	return fmt.Sprintf("10.0.%d.%d:0", p.number/256, p.number%256)
}

// Listen opens a doorbell.
func (n *postman) Listen(_ context.Context, at string) (net.PacketConn, error) {
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		return nil, err
	}
	b := &letterbox{n: n, at: netip.AddrPortFrom(addr.Addr(), 7), packets: make(chan []byte, 100), over: make(chan struct{})}
	ip := addr.Addr().As4()
	n.w.mu.Lock()
	b.p = n.w.lives[int(ip[2])*256+int(ip[3])]
	n.w.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bells[b.at.String()] = b
	return b, nil
}

// Dial returns what sends to a doorbell.
func (n *postman) Dial(_ context.Context, from *sql.DB, to string) (net.Conn, error) {
	return &ringing{n: n, from: from.Driver().(connector).p, to: to}, nil
}

// A letterbox is a doorbell that is open.
type letterbox struct {
	net.PacketConn // nil: what nobody calls
	n              *postman
	p              *Process
	at             netip.AddrPort
	packets        chan []byte
	once           sync.Once
	over           chan struct{}
}

func (b *letterbox) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(b.at) }

// SetReadDeadline is called to have nobody read any more.
func (b *letterbox) SetReadDeadline(time.Time) error {
	b.once.Do(func() { close(b.over) })
	return nil
}

func (b *letterbox) Close() error {
	b.n.mu.Lock()
	delete(b.n.bells, b.at.String())
	b.n.mu.Unlock()
	return b.SetReadDeadline(time.Time{})
}

func (b *letterbox) ReadFrom(packet []byte) (int, net.Addr, error) {
	select {
	case got := <-b.packets:
		return copy(packet, got), b.LocalAddr(), nil
	case <-b.over:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

// A ringing sends to a doorbell. Its host is told later that nobody listens there.
type ringing struct {
	net.Conn // nil: what nobody calls
	n        *postman
	from     *Process
	to       string
	mu       sync.Mutex
	refused  bool
}

func (r *ringing) Close() error { return nil }

func (r *ringing) Write(packet []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused {
		return 0, syscall.ECONNREFUSED
	}
	r.n.mu.Lock()
	b := r.n.bells[r.to]
	r.n.mu.Unlock()
	switch {
	case r.from.isDead() || r.from.holds():
	case b == nil || b.p.isDead():
		r.refused = true
	default:
		r.n.w.gate.deliver(r.n, b, append([]byte(nil), packet...))
	}
	return len(packet), nil
}

// deliver has a datagram arrive, or not.
func (g *gate) deliver(n *postman, b *letterbox, packet []byte) {
	t := &turn{p: b.p, op: "datagram " + string(packet), free: make(chan order, 1)}
	t.act = func() {
		d := n.w.Dice("datagram", t.seq)
		if b.p.isMute() || b.p.isDead() || d.once(n.every) {
			g.w.count("a doorbell is rung in vain")
			return
		}
		g.w.count("a doorbell is rung")
		for range 1 + d.IntN(10)/9 { // one is doubled
			select {
			case b.packets <- packet:
			default: // as a socket that is full
			}
		}
	}
	g.mu.Lock()
	g.waiting = append(g.waiting, t)
	g.mu.Unlock()
	g.look()
}
