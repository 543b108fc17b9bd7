package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/lock"
)

// lockWork is a few locks, a pool and an election, for which processes contend. Whoever holds a lock writes
// a register, in transactions that its lease guards.
type lockWork struct {
	ttl     time.Duration
	opt     lock.Options         // of all lockers
	beliefs map[string][]*belief // by lock
	writes  map[string][]*write
	waiting map[*Process]wait
	granted map[string]time.Time // when it was last granted
}

// A belief is the time during which a process took itself for the holder of a lock.
type belief struct {
	who         string
	slot        int
	fence       int64
	asked, from time.Time
	to          time.Time // zero: it still does
	released    bool
}

// A wait is that of a process for a lock.
type wait struct {
	name  string
	since time.Time
}

// A write is a guarded transaction that reads a register and writes it.
type write struct {
	who         string
	fence       int64
	from, to    time.Time
	read, wrote string
	outcome     fate // confirmed, refused or unknown
}

const (
	simPool   = "pool"
	simLeader = "leader"
	poolSize  = 2

	stallsAfter = 2 // leases without progress of the leader's work
)

func (l *lockWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "down", "flap", "readonly", "wall", "clock", "a lock is taken over",
		"a lease is lost", "a lease ends since its host's clock was set", "a lock is held by another", "a holder dawdles", "a waiter gets the lock", "a guarded write is refused",
		"a guarded write has an unknown outcome", "a leader is followed by another", "a leader's work stands still", "both slots of the pool are held",
		"a lease has lasted for as long as it may", "a lock is released that stays taken for a while",
	}
}

func (l *lockWork) Begin(w *World) error {
	l.ttl = time.Duration(w.Knob("ttl.ms", 500, 2000, 5000, 10000)) * time.Millisecond
	l.opt = lock.Options{
		TTL: l.ttl, Margin: l.ttl * time.Duration(w.Knob("margin.percent", 10, 10, 2, 50)) / 100,
		MinHold: time.Duration(w.Knob("min.hold.ms", 0, 0, 0, 1000)) * time.Millisecond, MaxHold: l.ttl * time.Duration(w.Knob("max.hold", 0, 0, 0, 1, 3)),
	}
	l.opt.Heartbeat = (l.ttl - l.opt.Margin) / time.Duration(w.Knob("heartbeat", 3, 3, 2, 6))
	l.beliefs, l.writes, l.waiting, l.granted = map[string][]*belief{}, map[string][]*write{}, map[*Process]wait{}, map[string]time.Time{}
	for _, text := range []string{
		`CREATE TABLE sim_register (name TEXT PRIMARY KEY, value TEXT NOT NULL)`,
	} {
		if _, err := w.Operator.Pool().ExecContext(w.Free(), text); err != nil {
			return err
		}
	}
	locks := w.Knob("locks", 1, 2, 4)
	for i := range locks {
		if _, err := w.Operator.Pool().ExecContext(w.Free(), `INSERT INTO sim_register (name, value) VALUES (?, '')`, lockName(i)); err != nil {
			return err
		}
	}
	for i := range w.Knob("holders", 2, 3, 5) {
		w.Start(fmt.Sprint("holder-", i), func(p *Process) error { return l.hold(p, locks) })
	}
	for i := range w.Knob("candidates", 0, 2) {
		w.Start(fmt.Sprint("candidate-", i), l.stand)
	}
	return nil
}

func lockName(i int) string { return fmt.Sprint("lock", i) }

func (l *lockWork) locker(p *Process, stalls bool) (*lock.Locker, *dialect.DB, error) {
	db, err := p.Open(6)
	if err != nil {
		return nil, nil, err
	}
	opt := l.opt
	opt.Owner, opt.Logger = p.who(), p.Log
	if stalls {
		opt.Stall = stallsAfter * l.ttl
	}
	locker, err := lock.New(db, opt)
	return locker, db, err
}

// hold takes one lock after the other, and works under it.
func (l *lockWork) hold(p *Process, locks int) error {
	locker, db, err := l.locker(p, false)
	if err != nil {
		return err
	}
	pool, err := locker.Pool(simPool, poolSize)
	if err != nil {
		return err
	}
	for p.ctx.Err() == nil {
		name := lockName(p.Dice.IntN(locks))
		if p.Dice.once(5) {
			name = simPool
		}
		b := &belief{who: p.who(), asked: time.Now()} //nolint:forbidigo // virtual
		le, err := l.take(p, locker, pool, name)
		if err != nil {
			p.Note("%s is not granted: %v", name, err)
			if err := p.Sleep(p.ctx, p.Dice.about(100*time.Millisecond)); err != nil {
				return err
			}
			continue
		}
		l.believes(p, name, b, le)
		l.work(p, db, name, le)
		l.letGo(p, name, b, le)
		_ = p.Sleep(p.ctx, p.Dice.about(50*time.Millisecond))
	}
	return p.ctx.Err()
}

// take takes a lock or a slot of the pool, waiting or not.
func (l *lockWork) take(p *Process, locker *lock.Locker, pool *lock.Pool, name string) (*lock.Lease, error) {
	try := p.Dice.once(2)
	ctx, cancel := context.WithTimeout(p.ctx, p.Dice.between(time.Second, 4*l.ttl+2*time.Second))
	defer cancel()
	var le *lock.Lease
	var err error
	if !try {
		p.Act(func() { l.waiting[p] = wait{name, time.Now()} }) //nolint:forbidigo // virtual
		defer func() {
			p.w.mu.Lock()
			defer p.w.mu.Unlock()
			delete(l.waiting, p)
		}()
	}
	switch {
	case name == simPool && try:
		le, err = pool.TryAcquire(ctx)
	case name == simPool:
		le, err = pool.Acquire(ctx)
	case try:
		le, err = locker.TryAcquire(ctx, name)
	default:
		le, err = locker.Acquire(ctx, name)
	}
	p.Act(func() {
		switch {
		case errors.Is(err, lock.ErrHeld):
			p.w.Reached("a lock is held by another")
		case err == nil && !try:
			p.w.Reached("a waiter gets the lock")
		}
	})
	if err == nil && p.isDead() {
		return nil, context.Canceled
	}
	return le, err
}

// believes notes that a process holds a lock from now on, until its lease's context ends or it dies.
func (l *lockWork) believes(p *Process, name string, b *belief, le *lock.Lease) {
	b.fence, b.slot = le.Fence(), le.Slot()
	p.Act(func() {
		b.from = time.Now() //nolint:forbidigo // virtual
		l.granted[name] = b.from
		for _, o := range l.beliefs[name] {
			if name == simPool && o.to.IsZero() {
				p.w.Reached("both slots of the pool are held")
			}
			if name == simLeader && o.who != b.who {
				p.w.Reached("a leader is followed by another")
			}
		}
		l.beliefs[name] = append(l.beliefs[name], b)
		p.w.Done("granted")
		p.Note("holds %s: fence %d", name, b.fence)
	})
	p.w.all.Go(func() {
		select {
		case <-le.Context().Done():
		case <-p.gone:
		}
		why := context.Cause(le.Context())
		l.ends(p, name, b, fmt.Sprint(why))
		p.Act(func() {
			switch {
			case !errors.Is(why, lock.ErrLost):
			case strings.Contains(why.Error(), "its clock was set"):
				p.w.Reached("a lease ends since its host's clock was set")
			case errors.Is(why, lock.ErrMaxHold):
				p.w.Reached("a lease has lasted for as long as it may")
			default:
				p.w.Reached("a lease is lost")
			}
		})
	})
}

// ends notes that a process does not take itself for the holder any more.
func (l *lockWork) ends(p *Process, name string, b *belief, why string) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if b.to.IsZero() {
		b.to = time.Now() //nolint:forbidigo // virtual
		p.w.history.add(event{who: p.who(), what: fmt.Sprintf("no longer holds %s: fence %d, %s", name, b.fence, why)})
	}
}

// work does a few guarded transactions.
func (l *lockWork) work(p *Process, db *dialect.DB, name string, le *lock.Lease) {
	if name == simPool {
		_ = p.Sleep(le.Context(), p.Dice.about(l.ttl/2))
		return
	}
	for n := range p.Dice.IntN(4) {
		if err := p.Sleep(le.Context(), p.Dice.about(l.ttl/6)); err != nil && p.Dice.once(2) { // others do not heed it
			return
		}
		wr := &write{who: p.who(), fence: le.Fence(), from: time.Now(), wrote: fmt.Sprintf("%s#%d.%d", p.who(), le.Fence(), n)} //nolint:forbidigo // virtual
		p.w.mu.Lock()
		l.writes[name] = append(l.writes[name], wr)
		p.w.mu.Unlock()
		outcome, err := guarded(p, db, name, le, wr)
		p.w.mu.Lock()
		wr.outcome, wr.to = outcome, time.Now() //nolint:forbidigo // virtual
		p.w.mu.Unlock()
		p.Note("writes %s with fence %d: read %q, wrote %q, %v", name, wr.fence, wr.read, wr.wrote, err)
		p.Act(func() {
			switch {
			case outcome == confirmed:
				p.w.Done("guarded writes")
			case outcome == unknown:
				p.w.Reached("a guarded write has an unknown outcome")
			case errors.Is(err, lock.ErrLost):
				p.w.Reached("a guarded write is refused")
			}
		})
	}
}

// guarded reads and writes a register in a transaction.
func guarded(p *Process, db *dialect.DB, name string, le *lock.Lease, wr *write) (fate, error) {
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return refused, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if err := le.Guard(ctx, tx); err != nil {
		return refused, err
	}
	if err := tx.QueryRowContext(ctx, `SELECT value FROM sim_register WHERE name = ?`, name).Scan(&wr.read); err != nil {
		return refused, err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE sim_register SET value = ? WHERE name = ?`, wr.wrote, name); err != nil {
		return refused, err
	}
	if err := tx.Commit(); err != nil {
		return unknown, err
	}
	return confirmed, nil
}

// letGo releases a lock, sometimes late.
func (l *lockWork) letGo(p *Process, name string, b *belief, le *lock.Lease) {
	if p.Dice.once(12) {
		p.Act(func() { p.w.Reached("a holder dawdles") })
		p.Note("dawdles with %s: fence %d", name, b.fence)
		_ = p.Sleep(le.Context(), 2*l.ttl) // its locker renews it meanwhile
	}
	l.ends(p, name, b, "it releases it")
	err := le.Release(p.ctx)
	p.Note("releases %s: fence %d, %v", name, b.fence, err)
	p.Act(func() {
		if b.released = err == nil; b.released && time.Since(b.from) < l.opt.MinHold {
			p.w.Reached("a lock is released that stays taken for a while")
		}
	})
}

// stand takes part in an election.
func (l *lockWork) stand(p *Process) error {
	locker, _, err := l.locker(p, true)
	if err != nil {
		return err
	}
	e, err := locker.NewElector(simLeader, lock.Election{Lead: func(ctx context.Context, le *lock.Lease) error {
		b := &belief{who: p.who(), asked: time.Now()} //nolint:forbidigo // virtual
		l.believes(p, simLeader, b, le)
		for range p.Dice.IntN(30) {
			le.Progress()
			if p.Sleep(ctx, p.Dice.about(l.ttl/3)) != nil {
				break
			}
		}
		if ctx.Err() == nil && p.Dice.once(3) {
			l.stall(ctx, p, le)
		}
		l.ends(p, simLeader, b, "it resigns")
		return nil
	}})
	if err != nil {
		return err
	}
	for p.ctx.Err() == nil {
		if err := e.Run(p.ctx); err != nil {
			return err
		}
		_ = p.Sleep(p.ctx, p.Dice.about(time.Second))
	}
	return p.ctx.Err()
}

// stall has the leader's work stand still: it must not lead on.
func (l *lockWork) stall(ctx context.Context, p *Process, le *lock.Lease) {
	limit := stallsAfter*l.ttl + 2*time.Second
	p.Note("the work of the leader stands still: fence %d", le.Fence())
	if p.Sleep(ctx, limit) == nil {
		p.w.Violate("stalled", []string{simLeader}, "%s leads with fence %d, and its work has made no progress for %v", p.who(), le.Fence(), limit)
	}
	if errors.Is(context.Cause(ctx), lock.ErrStalled) {
		p.Act(func() { p.w.Reached("a leader's work stands still") })
	}
}

// Left notices waiters for a lock that nobody has, and says which locks nobody got since the last fault.
func (l *lockWork) Left(w *World) string {
	quiet := w.Quiet()
	patience := l.ttl + l.opt.MinHold + 2*time.Second
	var stuck, left []string
	w.mu.Lock()
	for p, wait := range l.waiting {
		if w.steppedLocked() { // leases last for longer where the clock was set back
			break
		}
		if wait.name != simPool && time.Since(wait.since) > patience && quiet > patience && p.healthy() && l.freeSince(wait.name) > patience {
			stuck = append(stuck, fmt.Sprintf("%s waits for %s, which nobody has had for %v", p.who(), wait.name, patience))
		}
	}
	for name := range l.granted {
		if !l.granted[name].After(w.troubled) {
			left = append(left, name+" was not granted since the last fault")
		}
	}
	w.mu.Unlock()
	for _, text := range stuck {
		w.Violate("stuck", []string{"lock"}, "%s", text)
	}
	if !w.Over() {
		return ""
	}
	return strings.Join(left, "; ")
}

// freeSince returns for how long nobody has believed to hold a lock. The world's mutex is held.
func (l *lockWork) freeSince(name string) time.Duration {
	free := time.Hour
	for _, b := range l.beliefs[name] {
		if b.to.IsZero() {
			return 0
		}
		free = min(free, time.Since(b.to))
	}
	return free
}
