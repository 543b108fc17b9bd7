package faults

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/lock"
)

// playCandidate stands for election and reports who leads.
func playCandidate(ctx context.Context, a *actor) error {
	e, err := a.locker.NewElector(a.Name, lock.Election{
		Lead: func(ctx context.Context, lease *lock.Lease) error {
			say("lead", lease.Fence(), instant.Now())
			<-ctx.Done()
			sayEnd(context.Cause(ctx), lease.Fence(), instant.Now())
			return nil
		},
		Follow: func(leader *lock.HeldError) { say("follow", leader.Fence) },
	})
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// The test kills one leader and stops another for longer than its lease. Each time another leads,
// with a higher term. The stopped one has lost its leadership when it continues, and follows.
func TestLockLeaderKilledAndStopped(t *testing.T) {
	t.Parallel()
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		e := &election{t: t, db: db, part: part{URL: db.URL, Name: "leader", TTL: 2 * time.Second}}
		e.stand()
		e.elected(patience)
		e.stand()
		e.stand()
		e.followed()

		begun := instant.Now()
		e.leader.kill()
		e.candidates = slices.DeleteFunc(e.candidates, func(c *child) bool { return c == e.leader })
		e.elected(patience)
		t.Logf("another led %v after a leader was killed", instant.Now().Sub(begun).Round(time.Millisecond))
		e.stand()
		e.followed()

		begun = instant.Now()
		stopped, term := e.leader, e.term
		stopped.signal(syscall.SIGSTOP)
		if e.elected(whileStopped(db, e.TTL)) {
			t.Logf("another led %v after a leader was stopped", instant.Now().Sub(begun).Round(time.Millisecond))
			stopped.signal(syscall.SIGCONT)
		} else {
			t.Log("it was stopped while it kept all others from writing")
			stopped.signal(syscall.SIGCONT)
			e.elected(patience)
		}
		if lost := stopped.hear("lost").number(t, 0); lost != term {
			t.Errorf("the leader of term %d has lost term %d", term, lost)
		}
		e.followed()
	})
}

type election struct {
	part
	t          *testing.T
	db         *dbtest.DB
	candidates []*child
	leader     *child
	term       int64
}

func (e *election) stand() {
	e.t.Helper()
	e.candidates = append(e.candidates, start(e.t, "candidate", e.part))
}

// elected waits until there is a leader with a higher term.
func (e *election) elected(limit time.Duration) bool {
	e.t.Helper()
	leader, said := anyOf(e.t, "lead", limit, e.candidates...)
	if leader == nil {
		return false
	}
	term := said.number(e.t, 0)
	if now := readRow(e.t, e.db, e.Name); term <= e.term || now.fence != term {
		e.t.Errorf("term %d comes after %d, and the row says %d", term, e.term, now.fence)
	}
	e.leader, e.term = leader, term
	return true
}

// followed waits until all candidates but the leader know the leader.
func (e *election) followed() {
	e.t.Helper()
	for _, c := range e.candidates {
		for term := int64(0); c != e.leader && term != e.term; {
			term = c.hear("follow").number(e.t, 0)
		}
	}
}

// The leader's network freezes, and the server sees its connections end, as when a firewall or
// load balancer resets them on that side alone.
func TestLockLeaderIsCutOffOnOneSide(t *testing.T) {
	dbtest.Network.Each(t, func(t *testing.T, db *dbtest.DB) {
		w := newWire(t, db.URL)
		p := part{URL: db.URL, Name: "half cut", TTL: 30 * time.Second}
		behind := p
		behind.URL = w.url
		leader := start(t, "candidate", behind)
		leader.hear("lead")
		standby := start(t, "candidate", p)
		standby.hear("follow")
		w.toServer.Lock()
		w.toHere.Lock()
		defer w.toServer.Unlock()
		defer w.toHere.Unlock()
		w.mu.Lock()
		for i := 1; i < len(w.ends); i += 2 {
			w.ends[i].Close() // the far ends
		}
		w.mu.Unlock()
		led := standby.hear("lead").number(t, 1)
		lost := leader.hear("lost").number(t, 1)
		if led <= lost {
			t.Errorf("the standby led %v before the leader's context ended", time.Duration(lost-led))
		}
		t.Logf("the leader ceased to lead %v before the standby led", time.Duration(led-lost))
	})
}
