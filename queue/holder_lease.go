package queue

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A nodeLease is the worker's name in the tables and the lease for everything that it holds. It says
// when the lease was lost and the worker's work has to be given up; when it goes on although it was
// nearly over, with mu held; and when the worker has another name.
type nodeLease struct {
	*core
	wakes   *wakeups
	lost    func(why string)
	resumed func()
	entered func()

	drained  *string // who has drained it: see holder_share.go; nil: nobody
	over     bool    // it has left, and does not rejoin
	node     string
	last     string          // its name before the loss of its lease
	ended    []string        // its names that are over, and whose end is not written
	deadline instant.Instant // end of everything leased, at least
	surely   safety          // the same, for those who begin jobs
}

// A safety tells without the mutex, by the cheapest clock, whether the deadline is far enough away to begin a
// job. That clock may stand still while the host is suspended, so it does not replace the deadline, which was
// looked at when the job was taken out of its block. The zero value is over.
type safety struct{ nanos atomic.Int64 }

var zeroSafety = time.Now() //nolint:forbidigo // only compared with itself

func (s *safety) set(until instant.Instant) {
	s.nanos.Store(int64(time.Since(zeroSafety) + until.Sub(instant.Now())))
}

func (s *safety) over() bool { return int64(time.Since(zeroSafety)) >= s.nanos.Load() }

// lasts records until when the lease lasts; 0: it has ended. mu is held.
func (l *nodeLease) lasts(until instant.Instant) {
	l.deadline = until
	l.surely.set(until)
}

// wakeups tell a worker to look after its blocks.
type wakeups struct {
	sharings int             // number of rounds in which it has taken its share of the blocks
	hears    instant.Instant // last notification heard; 0: none
	called   chan struct{}   // signals a notification
	tick     chan struct{}   // signals to look after the blocks now
	bell     *doorbell       // nil: it has none
}

// errLate is the error of a lease that was granted so late that it may be over soon: it is none.
var errLate = errors.New("the database granted the lease too late")

// enter registers the worker under a new name. What it leases from then on belongs to it for as
// long as it renews its lease in time. It ends its previous name first, which tells others that it
// lives: see runner_return.go. If the database keeps it waiting, the time of the new lease runs
// meanwhile, so it tries again.
func (l *nodeLease) enter(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience())
	defer cancel()
	if err := l.leavePast(ctx); err != nil {
		return err
	}
	name, before := l.c.nodeName(), instant.Now()
	defer func() {
		if err != nil {
			l.leaves(name)
		}
	}()
	if _, err := l.leases.Exec(ctx, store.JoinNode, l.joining(name)); err != nil {
		return err
	}
	if l.wakes.bell != nil {
		if _, err := l.db.Exec(ctx, store.PutBell,
			sqlrun.Args{"node": name, "at": l.wakes.bell.at, "key": hex.EncodeToString(l.wakes.bell.key)}); err != nil {
			return err
		}
	}
	if took := since(before); took >= l.opt.Lease/2 {
		return fmt.Errorf("%w: after %v of %v", errLate, took.Round(time.Millisecond), l.opt.Lease)
	}
	l.mu.Lock()
	over := l.over
	if !over {
		l.node = name
		l.lasts(l.until(before))
	}
	l.mu.Unlock()
	if over { // it was stopped meanwhile, and has left under its previous name
		_, err := l.db.Exec(ctx, store.LeaveNode, sqlrun.Args{"node": name})
		return err
	}
	return nil
}

// leaves notes a name that is over. mu is not held.
func (l *nodeLease) leaves(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, name)
}

// leavePast writes that its past names are over.
func (l *nodeLease) leavePast(ctx context.Context) error {
	l.mu.Lock()
	names := slices.Clone(l.ended)
	l.mu.Unlock()
	for _, name := range names {
		if _, err := l.leases.Exec(ctx, store.LeaveNode, sqlrun.Args{"node": name}); err != nil {
			return err
		}
		l.mu.Lock()
		l.ended = slices.DeleteFunc(l.ended, func(o string) bool { return o == name })
		l.mu.Unlock()
	}
	return nil
}

// patience is how long to wait for an answer about the lease: on another connection there may be
// one in time.
func (l *nodeLease) patience() time.Duration { return max(l.opt.Lease/2, time.Second) }

func (l *nodeLease) joining(name string) sqlrun.Args {
	args := sqlrun.Args{
		"node": name, "lease": l.opt.Lease.Microseconds(), "under": l.opt.LeaderLock, "version": l.c.opt.Version, "drained": 0, "by": "",
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drained != nil {
		args["drained"], args["by"] = 1, *l.drained
	}
	return args
}

// until returns the end of a lease that was requested at an instant, minus a margin for
// noticing its loss.
func (l *nodeLease) until(asked instant.Instant) instant.Instant {
	return asked.Add(usable(l.opt.Lease))
}

// usable returns the part of a lease on which a worker relies.
func usable(lease time.Duration) time.Duration { return lease - lease/10 }

// DefaultLease is the lease of a worker whose options do not set one. Other workers take over a
// killed worker's blocks within ten seconds, and a process that is paused for five seconds loses
// nothing.
const DefaultLease = 8 * time.Second

// renewals is how many times a lease is renewed within its length: a process that is paused for
// three quarters of a lease does not lose it, nor does one whose renewals fail for that long.
const renewals = 8

// keep renews the lease of this process.
func (l *nodeLease) keep(ctx context.Context) {
	trouble := trouble.New(l.log, "renewing the lease")
	again := min(l.opt.Lease/20, 500*time.Millisecond) // after an error
	wait := l.opt.Lease / renewals
	for {
		if !pace.Sleep(ctx, inStep(min(wait, time.Second))) { // timers sleep while the host is suspended
			return
		}
		l.mu.Lock()
		name, left, over := l.node, l.deadline.Sub(instant.Now()), l.over
		l.mu.Unlock()
		if over {
			return
		}
		if name == "" {
			wait = l.reenter(ctx, trouble)
			continue
		}
		if wait = left - usable(l.opt.Lease) + l.opt.Lease/renewals; wait > 0 && left > 0 {
			continue // not yet
		}
		wait = again
		before := instant.Now()
		goes, err := l.renew(ctx, name)
		trouble.Note(err)
		switch {
		case err != nil:
			if left <= 0 {
				l.lost("it could not be renewed in time")
			}
		case !goes:
			l.lost("the lease had ended")
			wait = 0
		default:
			l.renewed(name, before)
			wait = max(0, l.opt.Lease/renewals-since(before)) // less if the answer came late
		}
	}
}

// renew renews the lease, and reports whether it continues.
func (l *nodeLease) renew(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience())
	defer cancel()
	mine := renewal{name, l.opt.Lease}
	all, err := l.c.commons.renews.get(context.WithValue(ctx, ownDB{}, l.leases), mine)
	goes, told := all[mine]
	if err == nil && !told {
		err = errNodeHeld
	}
	return goes, err
}

// renewed records a renewal. What waited because the lease was nearly over continues.
func (l *nodeLease) renewed(name string, asked instant.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.node != name {
		return
	}
	if instant.Now() >= l.deadline {
		l.resumed()
	}
	l.lasts(l.until(asked))
}

// reenter registers the worker again after it has lost its lease.
func (l *nodeLease) reenter(ctx context.Context, failing *trouble.Trouble) time.Duration {
	err := l.enter(ctx)
	failing.Note(err)
	if err != nil {
		return min(l.opt.Lease/20, 500*time.Millisecond)
	}
	l.entered()
	return l.opt.Lease / renewals
}

// A worker that ends tries for at most maxLeaving to record that, and for maxUnheard if the
// database does not answer.
const (
	maxLeaving = 30 * time.Second
	maxUnheard = 5 * time.Second
)

// nudge wakes a flusher for the blocks at once.
func (wake *wakeups) nudge() { signal(wake.tick) }
