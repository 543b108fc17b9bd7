package simulation

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A fault is something that happens again and again, to a process or to the server. Its knob, fault.name,
// is how many seconds pass in the mean until it happens again; 0: never.
type fault struct {
	name  string
	every []int
	// strike does it, in a turn of its own, and returns what mends it and after how long; nil: nothing does.
	strike func(n *nemesis, d dice) (what string, mend func(), after time.Duration)
}

// faults lists them. A further fault is a further line here.
var faults = []fault{
	{"kill", []int{0, 0, 5, 15, 60}, onProcess("is killed", func(p *Process, _ dice) (func(), time.Duration) {
		p.kill()
		return nil, 0
	})},
	{"restart", []int{0, 0, 20, 60}, onProcess("is told to stop", func(p *Process, _ dice) (func(), time.Duration) {
		p.stop()
		return nil, 0
	})},
	{"stop", []int{0, 0, 15, 60}, onProcess("stands still", func(p *Process, d dice) (func(), time.Duration) {
		p.change(func() { p.still = true })
		return func() { p.change(func() { p.still = false }) }, d.between(500*time.Millisecond, 30*time.Second)
	})},
	{"lose", []int{0, 0, 30, 60}, onProcess("reaches nobody", func(p *Process, d dice) (func(), time.Duration) {
		p.change(func() { p.lost = true })
		return func() {
			p.change(func() { p.lost = false })
			if d.once(2) {
				p.hangUp()
			}
		}, d.between(time.Second, 30*time.Second)
	})},
	{"mute", []int{0, 0, 30, 60}, onProcess("gets no answers", func(p *Process, d dice) (func(), time.Duration) {
		p.change(func() { p.mute = true })
		return func() {
			p.change(func() { p.mute = false })
			p.hangUp()
		}, d.between(time.Second, 20*time.Second)
	})},
	{"slow", []int{0, 0, 20, 60}, onProcess("is slow", func(p *Process, d dice) (func(), time.Duration) {
		p.change(func() { p.slow = 1 << (3 + d.IntN(6)) })
		return func() { p.change(func() { p.slow = 1 }) }, d.between(time.Second, 20*time.Second)
	})},
	{"hangup", []int{0, 0, 10, 30}, onProcess("loses all connections", func(p *Process, _ dice) (func(), time.Duration) {
		p.hangUp()
		return nil, 0
	})},
	{"deaf", []int{0, 0, 0, 10}, func(n *nemesis, d dice) (string, func(), time.Duration) {
		p := n.target(d)
		if p == nil || !n.w.server.deaden(p) {
			return "", nil, 0
		}
		return p.who() + " hears nothing any more, and is not told", nil, 0
	}},
	{"down", []int{0, 0, 0, 40}, onServer("is down", true, false, 20*time.Second)},
	{"flap", []int{0, 0, 0, 5}, onServer("goes down for a moment", true, false, 300*time.Millisecond)},
	{"readonly", []int{0, 0, 0, 40}, onServer("takes no writes", false, true, 20*time.Second)},
	{"full", []int{0, 0, 0, 40}, func(n *nemesis, d dice) (string, func(), time.Duration) {
		n.w.server.fill(true)
		n.w.jam(1)
		return "the server's disk is full", func() { n.w.server.fill(false); n.w.jam(-1) }, d.between(time.Second, 20*time.Second)
	}},
	{"wall", []int{0, 0, 0, 20}, onProcess("has its host's clock set", func(p *Process, d dice) (func(), time.Duration) {
		by := d.eitherWay(10 * time.Second)
		p.clock.StepWall(by)
		p.Note("its host's clock is set by %v", by)
		return nil, 0
	})},
	{"clock", []int{0, 0, 0, 0, 20}, func(n *nemesis, d dice) (string, func(), time.Duration) {
		by := d.eitherWay(oneOf(d, 4*time.Second, 30*time.Second))
		n.w.setClock(by)
		return fmt.Sprintf("the server's clock is set by %v", by), nil, 0
	}},
}

// onProcess is a fault of one process, chosen by the seed.
func onProcess(what string, do func(p *Process, d dice) (mend func(), after time.Duration)) func(*nemesis, dice) (string, func(), time.Duration) {
	return func(n *nemesis, d dice) (string, func(), time.Duration) {
		p := n.target(d)
		if p == nil {
			return "", nil, 0
		}
		n.saw(p, what)
		p.strike()
		mend, after := do(p, d)
		if mend == nil {
			return p.who() + " " + what, nil, 0
		}
		p.mu.Lock()
		p.away += after
		p.mu.Unlock()
		if p.holds() && !n.w.gate.writes(p) { // nobody waits for what it does not send
			return p.who() + " " + what, func() { mend(); p.strike() }, after
		}
		n.w.jam(1)
		return p.who() + " " + what, func() { mend(); p.strike(); n.w.jam(-1) }, after
	}
}

// onServer is a fault of the server.
func onServer(what string, down, readOnly bool, most time.Duration) func(*nemesis, dice) (string, func(), time.Duration) {
	return func(n *nemesis, d dice) (string, func(), time.Duration) {
		n.w.server.state(down, readOnly)
		if down {
			for _, p := range n.w.processes() {
				p.hangUp()
			}
		}
		n.w.jam(1)
		return "the server " + what, func() { n.w.server.state(false, false); n.w.jam(-1) }, d.between(most/20, most)
	}
}

// A nemesis has faults happen, each by its own dice, until it is ended.
type nemesis struct {
	w      *World
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// unleash begins with the faults.
func (w *World) unleash() *nemesis {
	n := &nemesis{w: w}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	idle := time.Duration(w.Knob("server.idle", 0, 5, 5)) * time.Second
	for _, f := range faults {
		every := time.Duration(w.Knob("fault."+f.name, f.every...)) * time.Second
		if every == 0 {
			continue
		}
		n.all.Go(func() { n.repeat(&f, every, idle) })
	}
	return n
}

// repeat has a fault happen again and again; or only from one time to another, which is how a scenario leaves
// out the others.
func (n *nemesis) repeat(f *fault, every, idle time.Duration) {
	knob := "fault." + f.name
	from, to := n.w.with[knob+".from"], n.w.with[knob+".to"]
	for i := 1; ; i++ {
		d := n.w.Dice(knob, i)
		if !n.sleep(d.about(every)) {
			return
		}
		n.w.mu.Lock()
		n.w.strikes[knob] = i
		n.w.mu.Unlock()
		if i >= from && (to == 0 || i <= to) {
			n.strike(f, d, idle)
		}
	}
}

// strike has a fault happen once, and has it mended later.
func (n *nemesis) strike(f *fault, d dice, idle time.Duration) {
	var mend func()
	var after time.Duration
	var what string
	n.w.gate.do(func() {
		if what, mend, after = f.strike(n, d); what != "" {
			n.w.history.add(event{who: theWorld, what: what})
			n.w.trouble()
			n.w.count(f.name)
		}
	})
	if mend == nil {
		return
	}
	n.all.Go(func() {
		if idle > 0 && after > idle && n.sleep(idle) {
			n.w.gate.do(func() { n.w.endIdle(idle) })
			after -= idle
		}
		n.sleep(after)
		n.w.gate.do(func() {
			n.w.history.add(event{who: theWorld, what: "no longer: " + what})
			n.w.trouble()
			mend()
		})
	})
}

// end ends the faults: everything is mended.
func (n *nemesis) end() {
	n.cancel()
	n.all.Wait()
}

func (n *nemesis) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-n.ctx.Done():
		return false
	}
}

// target returns a process that lives, or nil.
func (n *nemesis) target(d dice) *Process {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	h := n.w.hosts[d.IntN(len(n.w.hosts))]
	if p := h.now; !h.ended && p != nil && p.healthy() {
		return p
	}
	return nil
}

// saw notes in what situation a process was when a fault struck it.
func (n *nemesis) saw(p *Process, what string) {
	p.mu.Lock()
	writes := false
	for c := range p.conns {
		writes = writes || c.writes.Load()
	}
	p.mu.Unlock()
	if writes {
		n.w.count(what + " in a transaction")
	}
}

// Stepped reports whether the server's clock was set.
func (w *World) Stepped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.steppedLocked()
}

// steppedLocked is Stepped with the mutex held.
func (w *World) steppedLocked() bool { return w.reached["clock"] > 0 }

// count counts a situation.
func (w *World) count(situation string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached[situation]++
}

// processes returns those that live.
func (w *World) processes() (all []*Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		if h.now != nil {
			all = append(all, h.now)
		}
	}
	return all
}

// endIdle ends transactions of processes that do not go on, as PostgreSQL and MariaDB do.
func (w *World) endIdle(long time.Duration) {
	for _, p := range w.processes() {
		if !p.holds() {
			continue
		}
		p.mu.Lock()
		var all []*conn
		for c := range p.conns {
			if c.writes.Load() {
				all = append(all, c)
			}
		}
		p.mu.Unlock()
		for _, c := range all {
			w.history.add(event{who: p.who(), what: fmt.Sprintf("the server ends its transaction, idle for %v", long)})
			c.hangUp()
		}
	}
}

// losesFor has the process reach nobody for a while, after an answer that came late.
func (p *Process) losesFor(long time.Duration) {
	p.mu.Lock()
	p.away += long
	p.mu.Unlock()
	p.w.trouble()
	p.strike()
	p.w.jam(1)
	p.w.history.add(event{who: p.who(), what: fmt.Sprintf("reaches nobody for %v, after a late answer", long)})
	p.change(func() { p.lost = true })
	p.w.count("a process is cut off after a late answer")
	p.w.all.Go(func() {
		select {
		case <-p.w.faults.ctx.Done():
		case <-time.After(long):
		}
		p.change(func() { p.lost = false })
		p.w.trouble()
		p.strike()
		p.w.jam(-1)
	})
}

// way is how long a request is under way.
func (w *World) way(p *Process, d dice) time.Duration {
	mean := time.Duration(w.trip*p.slowness()) * time.Microsecond
	if d.once(500) {
		mean *= 30
	}
	return time.Microsecond + d.about(mean)
}

// fate decides what happens to a round trip.
func (w *World) fate(t *turn, d dice) (o order) {
	o.back = w.way(t.p, d)
	cut, after := d.once(t.p.fragile), d.once(2)
	switch {
	case t.c.isCut() || t.p.isDead():
		o.before = sqlconn.ErrCut
		return o
	case t.op == "rollback":
		return o
	}
	if err := w.server.refuses(t); err != nil && t.p.fragile != spared {
		o.before = err
		return o
	}
	if cut && !w.Over() {
		w.trouble()
		t.p.strike()
		if !after {
			o.before = fmt.Errorf("%w before the database heard of it", sqlconn.ErrCut)
			return o
		}
		o.after = fmt.Errorf("%w after the database had done it", sqlconn.ErrCut)
		if t.op == "commit" || t.write && !strings.HasPrefix(t.op, "begin") {
			w.count("written, and the answer lost")
		}
	}
	if late := d.once(t.p.tardy); late && !w.Over() && (t.op == "commit" || t.write && !strings.HasPrefix(t.op, "begin")) {
		w.trouble()
		t.p.strike()
		w.count("an answer comes late")
		o.back = d.between(time.Second, 10*time.Second)
		if d.once(2) { // so late that whoever asked still listens
			o.back = d.between(300*time.Millisecond, 3*time.Second)
		}
		if d.once(2) { // what it has learnt late, it cannot renew
			o.lose = d.between(time.Second, 20*time.Second)
		}
	}
	if t.p.isMute() || t.c.deaf.Load() {
		o.back = time.Hour
	}
	return o
}
