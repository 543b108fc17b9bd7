package lock

import (
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A mutant is a statement that lacks a guard, and the test that finds that out.
type mutant struct {
	stmt         *dialect.Stmt
	old, changed string
	test         string // to run
}

const (
	sqlite    = "/sqlite"
	free      = "(state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at <= {now})"
	ofOwner   = "lock_by = :owner AND "
	ofFence   = " AND fence = :fence"
	unexpired = " AND expire_at > {now}"
	unended   = " AND released_at IS NULL"
	inUse     = "state IN ('LOCK', 'EXTEND') AND "
)

var mutants = []mutant{
	{take, free, "state <> 'POOL'", "TestALeaseExcludesOthersUntilItEnds" + sqlite},
	{take, "expire_at <= {now}", "expire_at <= {now + 1000}", "TestALeaseExcludesOthersUntilItEnds" + sqlite},
	{take, "{next fence}", "fence = fence", "TestALeaseExcludesOthersUntilItEnds" + sqlite},
	{take, "(state = 'FREE' OR ", "(state IN ('FREE', 'POOL') OR ", "TestALockIsNoPool" + sqlite},
	{take, "AND released_at IS NULL THEN 1", "THEN 1", "TestMinHold" + sqlite},
	{extend, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + sqlite},
	{extend, ofFence, "", "TestOnlyItsOwn/fence.*" + sqlite},
	{extend, unexpired, "", "TestOnlyItsOwn/expire_at.*" + sqlite},
	{extend, unended, "", "TestOnlyItsOwn/released_at.*" + sqlite},
	{extend, inUse, "", "TestOnlyItsOwn/state.*" + sqlite},
	{extend, "WHEN expire_at > {now + :ttl} THEN", "WHEN expire_at IS NULL THEN", "TestExtend" + sqlite},
	{release, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + sqlite},
	{release, ofFence, "", "TestOnlyItsOwn/fence.*" + sqlite},
	{release, unexpired, "", "TestOnlyItsOwn/expire_at.*" + sqlite},
	{release, unended, "", "TestOnlyItsOwn/released_at.*" + sqlite},
	{keep, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + sqlite},
	{keep, unexpired, "", "TestOnlyItsOwn/expire_at.*" + sqlite},
	{keep, "+ :min}", "+ :min - 1000}", "TestMinHold" + sqlite},
	{describe, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + sqlite},
	{abandon, " AND lock_by = :owner", "", "TestAbandon" + sqlite},
	{guard, " AND fence <= :fence", "", "TestGuardOfAStaleSnapshot" + sqlite},
	{current, unexpired, "", "TestOnlyItsOwn/expire_at.*" + sqlite},
	{current, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + sqlite},
	{takeSlot, free, "state <> 'CLOSED'", "TestPool" + sqlite},
	{takeSlot, "(state = 'FREE' OR ", "(state IN ('FREE', 'CLOSED') OR ", "TestResize" + sqlite},
	{takeSlot, "{skip_locked}", "", "TestTakersPassEachOther/postgres"}, // the UPDATE itself does not look again
	{closeSlots, free, "1 = 1", "TestResize" + sqlite},
	{pool, " AND state = 'POOL'", "", "TestALockIsNoPool" + sqlite},
	{idle, "expire_at < {now + :ago}", "1 = 1", "TestPurge" + sqlite},
	{raise, "WHEN fence < :fence THEN :fence", "WHEN fence < :fence THEN fence", "TestPurge" + sqlite},
	{forced, "forced_fence", "NULL", "TestARepeatedRelease" + sqlite},
	{usurp, " AND session <> ''", "", "TestNoUsurpingOfALeaderWithoutASession/postgres"},
	{usurp, "AND lock_by = :seen", "", "TestNoUsurpingOfALeaderWithoutASession/postgres"},
	{usurp, " AND fence = :seen_fence", "", "TestNoUsurpingOfALeaderWithoutASession/postgres"},
	{enqueue, "AND waiters[1] <> :me", "", "TestQueuePassesOn/postgres"},
	{enqueue, "AND {now + -50000} < released_at", "", "TestQueuePassesOn/postgres"},
	{dequeue, "waiting_until > {now}", "1 = 0", "TestQueuePassesOn/postgres"},
}

// forProgram are the mutants for dbtest.
func forProgram() (all []dbtest.Mutant) {
	for _, m := range mutants {
		all = append(all, dbtest.Mutant{Stmt: m.stmt, Old: m.old, Changed: m.changed, Test: m.test})
	}
	return all
}

// Each guard that a statement has is there because something breaks without it.
func TestMutants(t *testing.T) { dbtest.TestMutants(t, forProgram()) }
