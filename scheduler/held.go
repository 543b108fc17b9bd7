package scheduler

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Anybody may hold rows of ours in a transaction that stays open, such as a session at the SQL prompt. What a daemon
// does for all its runs passes over such rows and comes back to them, and a transaction for one run that would
// have to wait ends and is tried again: so it keeps no connection meanwhile. A lease that nobody can renew
// ends by the database's clock, like any other. The reasons: docs/adr/0037-rounds-wait-for-no-row.md.

// errHeld means that another transaction has locked a row.
var errHeld = errors.New("another transaction has locked the row")

func heldRun(id int64) error { return fmt.Errorf("%w of the run %d", errHeld, id) }

// An owner says whose a run is.
type owner struct{ state, claim string }

// runs reports whether the run goes on, by a claim.
func (o owner) runs(claim string) bool { return o.state == "running" && o.claim == claim }

// ownersOf runs free or seen.
func ownersOf(ctx context.Context, on *sqlrun.Session, stmt *sqlrun.Stmt, ids []int64) (map[int64]owner, error) {
	owners := make(map[int64]owner, len(ids))
	_, err := sqlrun.Select(ctx, on, stmt, sqlrun.Args{"ids": ids}, func(rows *sql.Rows) (none struct{}, err error) {
		var id int64
		var o owner
		err = rows.Scan(&id, &o.state, &o.claim)
		owners[id] = o
		return none, err
	})
	return owners, err
}

// whyNone returns an errHeld if a run still is this daemon's, so that a statement has not changed it because others have
// locked its row; nil: the run was lost.
func whyNone(ctx context.Context, on *sqlrun.Session, e *execution) error {
	owners, err := ownersOf(ctx, on, seen, []int64{e.id})
	if err == nil && owners[e.id].runs(e.claim) {
		err = heldRun(e.id)
	}
	return err
}

// lockFree locks a schedule. If another transaction has locked it, the error is an errHeld.
func lockFree(ctx context.Context, tx *sqlrun.Session, name string) (c candidate, err error) {
	args := sqlrun.Args{"names": []string{name}}
	found, err := selectLocked(ctx, tx, lockNamed, args)
	if err != nil {
		return c, err
	}
	if len(found) == 1 {
		return found[0], nil
	}
	there, err := sqlrun.Select(ctx, tx, existing, args, scanText)
	switch {
	case err != nil:
		return c, err
	case len(there) == 0:
		return c, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return c, fmt.Errorf("%w of the schedule %s", errHeld, name)
}

// lockSome locks the schedules of runs that end, and returns them by name, nil for those that are gone. It leaves out those that others
// have locked.
func lockSome(ctx context.Context, tx *sqlrun.Session, part []*pendingOutcome) (map[string]*candidate, error) {
	locked := map[string]*candidate{}
	for _, one := range part {
		locked[one.ending.e.schedule] = nil
	}
	args := sqlrun.Args{"names": slices.Sorted(maps.Keys(locked))}
	found, err := selectLocked(ctx, tx, lockNamed, args)
	if err != nil {
		return nil, err
	}
	for i := range found {
		locked[found[i].Name] = &found[i]
	}
	if len(found) == len(locked) {
		return locked, nil
	}
	there, err := sqlrun.Select(ctx, tx, existing, args, scanText)
	for _, name := range there {
		if locked[name] == nil {
			delete(locked, name)
		}
	}
	return locked, err
}

// othersHold locks the open runs of schedules whose next slot replaces them. It returns, by schedule, one that another
// transaction has locked.
func othersHold(ctx context.Context, tx *sqlrun.Session, locked []candidate, open map[string][]openRun) (map[string]int64, error) {
	var ids []int64
	for i := range locked {
		if c := &locked[i]; c.overlap() == "replace" {
			for _, o := range open[c.Name] {
				ids = append(ids, o.id)
			}
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	mine, err := ownersOf(ctx, tx, free, ids)
	if err != nil || len(mine) == len(ids) {
		return nil, err
	}
	there, err := ownersOf(ctx, tx, seen, ids)
	held := map[string]int64{}
	for i := range locked {
		if c := &locked[i]; c.overlap() == "replace" {
			for _, o := range open[c.Name] {
				_, isMine := mine[o.id]
				if _, isThere := there[o.id]; isThere && !isMine {
					held[c.Name] = o.id
				}
			}
		}
	}
	return held, err
}

// passOver leaves a locked schedule for later, because another transaction has locked one of its runs. Its slot
// stays the same.
func (s *Scheduler) passOver(ctx context.Context, tx *sqlrun.Session, c *candidate, run int64) error {
	after := min(max(c.now.Sub(c.nextExec)/2, 50*time.Millisecond), time.Second)
	why := "not claimed yet: " + heldRun(run).Error()
	_, err := tx.Exec(ctx, putOff, sqlrun.Args{"id": c.ID, "after": after.Microseconds(), "reason": why})
	return err
}

// brief returns the database for claims of a lane, whose transactions wait for a lock for a second at most where that
// costs nothing, and what to do afterwards. Claims pass over the rows that others have locked, but what they insert may have the
// key of a row that a stranger has not committed: seldom a slot's, and easily a job's unique key. MySQL and
// MariaDB bound the wait by connection, so there only claims of jobs are brief.
func (s *Scheduler) brief(lane string) (db *dialect.DB, done func()) {
	switch briefly := s.db.Dialect.Briefly; {
	case briefly == nil:
		return s.db.Brief(), func() {}
	case ofJobs(lane):
		pool := sqlconn.Borrow(s.db.Pool(), 1, briefly)
		return s.db.Over(pool).Brief(), func() { _ = pool.Close() }
	}
	return s.db, func() {}
}

// leftovers are what a transaction leaves to be done after its commit, because others have locked the rows.
type leftovers struct {
	notes noteRows // incidents of schedules: see noteRest
	turns []int64  // runs whose turn has come: see releaseRest
}

// doLater takes over what a transaction has left, after its commit.
func (s *Scheduler) doLater(left leftovers) {
	s.noteLater(left.notes)
	if len(left.turns) == 0 {
		return
	}
	until := instant.Now().Add(s.turnAfter())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range left.turns {
		s.turns = append(s.turns, turn{id, until})
	}
	select {
	case s.left <- struct{}{}:
	default: // it is known
	}
}

// A turn is that of a waiting run to begin.
type turn struct {
	run   int64
	until instant.Instant // from then on the run looks by itself
}

// releaseRest releases the runs whose rows others had locked when it was their turn, until ctx ends. Mostly the others are
// daemons, whose rows are free again within milliseconds.
func (s *Scheduler) releaseRest(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.left:
		}
		s.mu.Lock()
		turns := s.turns
		s.turns = nil
		s.mu.Unlock()
		for wait := firstWait; len(turns) > 0; wait *= 2 {
			select {
			case <-ctx.Done():
				return
			case <-s.left:
				s.mu.Lock()
				turns = append(turns, s.turns...)
				s.turns, wait = nil, firstWait
				s.mu.Unlock()
			case <-time.After(wait):
			}
			ids := make([]int64, len(turns))
			for i := range turns {
				ids[i] = turns[i].run
			}
			held, err := releaseFree(ctx, &s.db.Session, ids)
			at := instant.Now()
			turns = slices.DeleteFunc(turns, func(t turn) bool {
				return at >= t.until || err == nil && !slices.Contains(held, t.run)
			})
		}
	}
}

const firstWait = 5 * time.Millisecond

// releaseSoon is releaseRest for a program that is no daemon. It gives up within a second.
func releaseSoon(ctx context.Context, db *dialect.DB, ids []int64) {
	for wait := firstWait; len(ids) > 0 && wait < 500*time.Millisecond; wait *= 2 {
		if !pace.Sleep(ctx, wait) {
			return
		}
		if held, err := releaseFree(ctx, &db.Session, ids); err == nil {
			ids = held
		}
	}
}

// releaseFree lets those of some runs begin that wait for their turn, and returns those that others have locked.
func releaseFree(ctx context.Context, on *sqlrun.Session, ids []int64) (held []int64, err error) {
	args := sqlrun.Args{"ids": ids}
	n, err := on.Exec(ctx, release, args)
	if err != nil || n == int64(len(ids)) {
		return nil, err
	}
	return sqlrun.Select(ctx, on, unreleased, args, scanID)
}
