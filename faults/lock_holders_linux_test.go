package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
)

// playHolder follows orders and reports when its lease has ended.
func playHolder(ctx context.Context, a *actor) error {
	var lease *lock.Lease
	for {
		switch order := <-a.orders; order {
		case "acquire":
			var err error
			if lease, err = a.locker.Acquire(ctx, a.Name); err != nil {
				return err
			}
			say("granted", lease.Fence(), instant.Now())
			context.AfterFunc(lease.Context(), func() {
				sayEnd(context.Cause(lease.Context()), instant.Now())
			})
		case "extend":
			err := lease.Extend(ctx)
			for tick := time.NewTicker(50 * time.Millisecond); err != nil && lease.Check() == nil; err = lease.Extend(ctx) {
				<-tick.C // the database does not answer
			}
			if err != nil {
				return err
			}
			say("extended", lease.Fence())
		case "release":
			begun := instant.Now()
			err := lease.Release(ctx)
			say("released", begun, err)
		}
	}
}

// A holder dies. The next one gets the lock when the lease has expired, with a higher fence.
func TestLockHolderKilled(t *testing.T) {
	t.Parallel()
	dbtest.Locks.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		p := part{URL: db.URL, Name: "killed", TTL: 2 * time.Second}
		holder, rival := start(t, "holder", p), start(t, "holder", p)
		holder.tell("acquire")
		holder.hear("granted")
		rival.tell("acquire")
		holder.kill()
		dead := readRow(t, db, p.Name)
		fence := rival.hear("granted").number(t, 0)
		next := readRow(t, db, p.Name)
		if next.fence != fence {
			t.Errorf("the row has fence %d, and the holder %d", next.fence, fence)
		}
		takenOver(t, dead, next)
		rival.tell("release")
		if said := rival.hear("released"); said[1] != "<nil>" {
			t.Errorf("release: %v", said)
		}
	})
}

// playWriter holds the lock and writes rows, some without a fence and some in guarded transactions,
// until it has lost the lease. It is careless: it continues until it is refused.
func playWriter(ctx context.Context, a *actor) error {
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		lease, err := a.locker.Acquire(ctx, a.Name)
		if err != nil {
			return err
		}
		say("granted", lease.Fence())
		w := &writer{actor: a, lease: lease}
		for w.write(ctx) {
			<-tick.C
		}
		if w.err != nil {
			return w.err
		}
		<-lease.Context().Done()
		sayEnd(context.Cause(lease.Context()))
		if order := <-a.orders; order != "again" {
			return fmt.Errorf("unexpected order %q", order)
		}
	}
}

// A writer writes under one lease.
type writer struct {
	*actor
	lease *lock.Lease
	place string // where to stop
	wrote bool
	err   error
}

// Points at which a writer can be stopped.
const (
	checked  = "checked" // after Check, before a write without a fence
	begin    = "begin"   // before a guarded transaction
	guarded  = "guarded" // inside a guarded transaction
	anywhere = "anywhere"
)

// write writes a row in each way and reports whether the writer can continue.
func (w *writer) write(ctx context.Context) bool {
	select {
	case w.place = <-w.orders:
	default:
	}
	if w.lease.Check() == nil {
		w.stopAt(checked)
		if err := record(ctx, &w.db.Session, w.lease.Fence(), checked); err != nil && !w.db.Dialect.Retryable(err) {
			w.err = errors.Join(w.err, err)
		}
	}
	w.stopAt(begin)
	err := w.guarded(ctx)
	switch {
	case errors.Is(err, lock.ErrLost) || w.err != nil:
		return false
	case err != nil && !w.db.Dialect.Retryable(err):
		w.err = err
		return false
	case err == nil && !w.wrote:
		w.wrote = true
		say("wrote", w.lease.Fence())
	}
	return true
}

func (w *writer) stopAt(place string) {
	if w.place == place {
		w.place = ""
		w.err = errors.Join(w.err, stopHere())
	}
}

func (w *writer) guarded(ctx context.Context) error {
	tx, err := w.db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing; before, the error that led here says more
	if err := w.lease.Guard(ctx, tx); err != nil {
		return err
	}
	w.stopAt(guarded)
	if err := record(ctx, w.db.On(tx), w.lease.Fence(), guarded); err != nil {
		return err
	}
	return tx.Commit()
}

// A record is a numbered row. Its number gives the order of all writes.
var (
	nextRecord = sqlrun.Unlisted(`UPDATE {prefix}test_sequence SET {next n} {returning n}`)
	addRecord  = sqlrun.Unlisted(`INSERT INTO {prefix}test_record (n, fence, what) VALUES (:n, :fence, :what)`)
)

func makeRecords(t *testing.T, db *dbtest.DB) {
	t.Helper()
	db.Do(t, `CREATE TABLE {prefix}test_sequence (n BIGINT NOT NULL)`, nil)
	db.Do(t, `INSERT INTO {prefix}test_sequence (n) VALUES (0)`, nil)
	db.Do(t, `CREATE TABLE {prefix}test_record (n BIGINT NOT NULL PRIMARY KEY, fence BIGINT NOT NULL, what VARCHAR(20) NOT NULL)`, nil)
}

func record(ctx context.Context, s *sqlrun.Session, fence int64, what string) error {
	n, found, err := s.Next(ctx, nextRecord, nil)
	if err != nil || !found {
		return errors.Join(err, ctx.Err())
	}
	_, err = s.Exec(ctx, addRecord, sqlrun.Args{"n": n, "fence": fence, "what": what})
	return err
}

// late counts the records of a kind that come after a guarded record of a later holder.
func late(t *testing.T, db *dbtest.DB, what string) (late, all int) {
	t.Helper()
	highest := int64(0)
	for _, line := range db.List(t, `SELECT fence, what FROM {prefix}test_record ORDER BY n`, nil) {
		said := words(strings.Fields(line))
		fence := said.number(t, 0)
		if said[1] == what {
			all++
			if fence < highest {
				late++
			}
		}
		if said[1] == guarded {
			highest = max(highest, fence)
		}
	}
	return late, all
}

// whileStopped is how long to wait for the next holder while one is stopped. With a single writer,
// the stopped one may be it, and nobody gets anything before it continues.
func whileStopped(db *dbtest.DB, ttl time.Duration) time.Duration {
	if db.Dialect.SkipLocked == "" {
		return 2 * ttl
	}
	return patience
}

// The test stops a holder for longer than its lease, again and again, at the worst moments. When it
// continues, no guarded write passes, and its context has ended with ErrLost.
func TestLockHolderStopped(t *testing.T) {
	t.Parallel()
	dbtest.Locks.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		makeRecords(t, db)
		p := part{URL: db.URL, Name: "stopped", TTL: 2 * time.Second}
		holder := start(t, "writer", p)
		holder.hear("granted")
		holder.hear("wrote")
		rival := start(t, "writer", p)

		places := []string{checked, begin, guarded, anywhere, checked}
		if db.Dialect.SkipLocked == "" {
			places = []string{checked, begin, anywhere, begin, checked} // stopped inside a transaction, it would keep all others from writing
		}
		rounds := len(places)
		if *minutes > 0 {
			rounds *= 5
		}
		for i := range rounds {
			place := places[i%len(places)]
			if place == anywhere {
				holder.signal(syscall.SIGSTOP)
			} else {
				holder.tell(place)
				holder.hear("stopping")
			}
			wrote := false
			_, granted := rival.hearWithin("granted", whileStopped(db, p.TTL))
			if granted { // if the holder stands in a transaction, the rival waits for its end
				_, wrote = rival.hearWithin("wrote", p.TTL/2)
			}
			holder.signal(syscall.SIGCONT)
			if !granted {
				t.Logf("round %d: it was stopped while it kept all others from writing", i)
				rival.hear("granted")
			}
			holder.hear("lost")
			if !wrote {
				rival.hear("wrote")
			}
			holder.tell("again")
			holder, rival = rival, holder
		}
		holder.kill()
		rival.kill()
		stale, all := late(t, db, guarded)
		if stale > 0 || all == 0 {
			t.Errorf("%d of %d guarded writes came after one of a later holder, want none", stale, all)
		}
		unguarded, of := late(t, db, checked)
		figures(t, map[string]int{"stops": rounds, "guarded writes": all, "writes after Check": of, "late writes after Check": unguarded})
		t.Logf("stopped %d times: %d of %d writes after Check alone were late, and %d of %d guarded ones", rounds, unguarded, of, stale, all)
	})
}
