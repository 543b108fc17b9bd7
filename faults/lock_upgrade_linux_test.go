package faults

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/lock"
)

// playMarker takes and releases the lock again and again.
func playMarker(ctx context.Context, a *actor) error {
	lease, err := a.locker.TryAcquire(ctx, a.Name)
	switch {
	case err == nil:
		err = errors.Join(a.hold(lease.Context(), lease), lease.Release(ctx))
	case errors.Is(err, lock.ErrHeld):
		say("refused")
		err = nil
	}
	for err == nil || errors.Is(err, lock.ErrLost) {
		err = a.locker.Do(ctx, a.Name, a.hold)
	}
	return err
}

// hold locks a file for as long as it has the lock: the system unlocks the file when this process
// dies. It also records a mark in the database at the beginning and at the end.
func (a *actor) hold(ctx context.Context, lease *lock.Lease) error {
	file, err := os.OpenFile(a.File, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() // unlocks it before the lock is released
	defer context.AfterFunc(ctx, func() { file.Close() })()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		say("error", "two hold the lock, one of them with fence", lease.Fence())
	}
	if err := errors.Join(err, mark(ctx, a.db, lease, "begin")); err != nil {
		return err
	}
	say("holding", lease.Fence())
	<-a.orders
	return mark(ctx, a.db, lease, "end")
}

func mark(ctx context.Context, db *dialect.DB, lease *lock.Lease, what string) error {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing; before, the error that led here says more
	if err := lease.Guard(ctx, tx); err != nil {
		return err
	}
	if err := record(ctx, db.On(tx), lease.Fence(), what); err != nil {
		return err
	}
	return tx.Commit()
}

// Two processes of different versions share a lock, one with long leases and one with short ones.
// The test kills each while it holds the lock. The two never hold it at once: neither relies on its
// own idea of how long a lease lasts.
func TestLockRollingUpgrade(t *testing.T) {
	t.Parallel()
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		makeRecords(t, db)
		short := part{URL: db.URL, Name: "upgrade", File: t.TempDir() + "/held", TTL: 2 * time.Second}
		long, rounds := short, 1
		long.TTL = 10 * time.Second
		if *minutes > 0 {
			long.TTL, rounds = 20*time.Second, 3
		}
		u := &upgrade{t: t, db: db, parts: []part{short, long}, holds: make([]int, 2)}
		for _, p := range u.parts {
			u.both = append(u.both, start(t, "marker", p))
		}
		for range rounds {
			u.holds = []int{0, 0}
			for u.holds[0] < 10 || u.holds[1] < 10 {
				u.hold()
			}
		}
		u.account()
	})
}

type upgrade struct {
	t     *testing.T
	db    *dbtest.DB
	parts []part
	both  []*child
	holds []int // of each process, since the round began
	dead  *row  // row of a holder that was killed
	kills int
}

// hold handles one turn of whichever process holds the lock.
func (u *upgrade) hold() {
	u.t.Helper()
	holder, said := anyOf(u.t, "holding", patience, u.both...)
	now := readRow(u.t, u.db, "upgrade")
	if fence := said.number(u.t, 0); now.fence != fence {
		u.t.Fatalf("%s has fence %d, and the row %d", holder.name, fence, now.fence)
	}
	if u.dead != nil {
		takenOver(u.t, *u.dead, now)
		u.dead = nil
	}
	who := 0
	if holder == u.both[1] {
		who = 1
	}
	u.holds[who]++
	if n := u.holds[who]; who == 0 && (n == 4 || n == 8) || who == 1 && n == 5 {
		holder.kill()
		dead := readRow(u.t, u.db, "upgrade")
		u.dead, u.kills = &dead, u.kills+1
		u.both[who] = start(u.t, "marker", u.parts[who])
		return
	}
	if who == 1 && u.holds[1] == 3 { // hold it for longer than the other's leases last
		u.until(now.at + 5*u.parts[0].TTL.Microseconds()/4)
		u.both[0].kill()
		u.both[0] = start(u.t, "marker", u.parts[0])
		u.both[0].hear("refused")
	}
	holder.tell("go on")
}

// until waits for an instant of the database's clock.
func (u *upgrade) until(us int64) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for now := int64(0); now < us; <-tick.C {
		u.db.Scan(u.t, `SELECT {us {now}}`, nil, &now)
	}
}

// account checks that no mark of a holder lies among those of a later one.
func (u *upgrade) account() {
	for _, c := range u.both {
		c.kill()
	}
	begun, held := int64(0), 0
	for _, line := range u.db.List(u.t, `SELECT fence, what FROM {prefix}test_record ORDER BY n`, nil) {
		said := words(strings.Fields(line))
		fence := said.number(u.t, 0)
		if said[1] == "begin" && fence <= begun || said[1] == "end" && fence != begun {
			u.t.Errorf("fence %d: %s comes after the beginning of %d", fence, said[1], begun)
		}
		if said[1] == "begin" {
			begun, held = fence, held+1
		}
	}
	figures(u.t, map[string]int{"kills": u.kills, "grants": held})
	u.t.Logf("held %d times, the last %v of them by each; killed %d times while it was", held, u.holds, u.kills)
}
