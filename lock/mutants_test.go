package lock

import (
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A mutant is a statement that lacks a guard, and the test that finds that out.
type mutant struct {
	stmt         *sqlrun.Stmt
	old, changed string
	test         string // to run
}

const (
	onSQLite  = "/sqlite"
	free      = "(state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at <= {now})"
	ofOwner   = "lock_by = :owner AND "
	ofFence   = " AND fence = :fence"
	unexpired = " AND expire_at > {now}"
	unended   = " AND released_at IS NULL"
	inUse     = "state IN ('LOCK', 'EXTEND') AND "
)

var mutants = []mutant{
	{take, free, "state <> 'POOL'", "TestALeaseExcludesOthersUntilItEnds" + onSQLite},
	{take, "expire_at <= {now}", "expire_at <= {now + 1000}", "TestALeaseExcludesOthersUntilItEnds" + onSQLite},
	{take, "{next fence}", "fence = fence", "TestALeaseExcludesOthersUntilItEnds" + onSQLite},
	{take, "(state = 'FREE' OR ", "(state IN ('FREE', 'POOL') OR ", "TestALockIsNoPool" + onSQLite},
	{take, "AND released_at IS NULL THEN 1", "THEN 1", "TestMinHold" + onSQLite},
	{takeMany, free, "state <> 'POOL'", "TestTogetherEachHasItsAnswer" + onSQLite},
	{takeMany, "(state = 'FREE' OR ", "(state IN ('FREE', 'POOL') OR ", "TestTogetherEachHasItsAnswer" + onSQLite},
	{takeMany, "{next fence}", "fence = fence", "TestTogether" + onSQLite},
	{takeMany, "{skip_locked}", "", "TestTogetherNobodyWaitsForAnothersRow/postgres"},
	{releaseMany, "l.lock_by = record.owner AND ", "", "TestTogetherOnlyItsOwn/lock_by.*" + onSQLite},
	{releaseMany, "AND l.fence = record.fence", "", "TestTogetherOnlyItsOwn/fence.*" + onSQLite},
	{releaseMany, "AND l.state IN ('LOCK', 'EXTEND') ", "", "TestTogetherOnlyItsOwn/state.*" + onSQLite},
	{releaseMany, "AND l.released_at IS NULL ", "", "TestTogetherOnlyItsOwn/released_at.*" + onSQLite},
	{releaseMany, " AND l.expire_at > {now}", "", "TestTogetherOnlyItsOwn/expire_at.*" + onSQLite},
	{extend, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + onSQLite},
	{extend, ofFence, "", "TestOnlyItsOwn/fence.*" + onSQLite},
	{extend, unexpired, "", "TestOnlyItsOwn/expire_at.*" + onSQLite},
	{extend, unended, "", "TestOnlyItsOwn/released_at.*" + onSQLite},
	{extend, inUse, "", "TestOnlyItsOwn/state.*" + onSQLite},
	{extend, "> {now + :ttl} THEN", "IS NULL THEN", "TestExtend" + onSQLite},
	{extend, "WHEN update_time > {now + 60000000} THEN", "WHEN update_time IS NULL THEN", "TestALeaseOutlastsNoClockThatWentBack" + onSQLite},
	{extend, "{now + 60000000}", "{now}", "TestALeaseOfAServerThatIsAhead" + onSQLite},
	{describe, "WHEN update_time > {now + 60000000} THEN", "WHEN update_time IS NULL THEN", "TestALeaseOutlastsNoClockThatWentBack" + onSQLite},
	{settle, " AND update_time > {now + 60000000}", "", "TestALeaseAfterTheClockWentBackStays" + onSQLite},
	{settle, "name = :name AND ", "", "TestALeaseOutlastsNoClockThatWentBack" + onSQLite},
	{settle, ", update_time = {now}", "", "TestALeaseOutlastsNoClockThatWentBack" + onSQLite},
	{keep, "WHEN lock_at > {now} THEN", "WHEN lock_at IS NULL THEN", "TestALeaseOutlastsNoClockThatWentBack" + onSQLite},
	{release, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + onSQLite},
	{release, ofFence, "", "TestOnlyItsOwn/fence.*" + onSQLite},
	{release, unexpired, "", "TestOnlyItsOwn/expire_at.*" + onSQLite},
	{release, unended, "", "TestOnlyItsOwn/released_at.*" + onSQLite},
	{keep, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + onSQLite},
	{keep, unexpired, "", "TestOnlyItsOwn/expire_at.*" + onSQLite},
	{keep, "+ :min}", "+ :min - 1000}", "TestMinHold" + onSQLite},
	{describe, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + onSQLite},
	{abandon, " AND lock_by = :owner", "", "TestAbandon" + onSQLite},
	{guard, " AND fence <= :fence", "", "TestGuardOfAStaleSnapshot" + onSQLite},
	{current, unexpired, "", "TestOnlyItsOwn/expire_at.*" + onSQLite},
	{current, ofOwner, "", "TestOnlyItsOwn/lock_by.*" + onSQLite},
	{takeSlot, free, "state <> 'CLOSED'", "TestPool" + onSQLite},
	{takeSlot, "(state = 'FREE' OR ", "(state IN ('FREE', 'CLOSED') OR ", "TestResize" + onSQLite},
	{takeSlot, "{skip_locked}", "", "TestTakersPassEachOther/postgres"}, // the UPDATE itself does not look again
	{closeSlots, free, "1 = 1", "TestResize" + onSQLite},
	{pool, " AND state = 'POOL'", "", "TestALockIsNoPool" + onSQLite},
	{idle, "expire_at < {now + :ago}", "1 = 1", "TestPurge" + onSQLite},
	{raise, "WHEN fence < :fence THEN :fence", "WHEN fence < :fence THEN fence", "TestPurge" + onSQLite},
	{forced, "forced_fence", "NULL", "TestARepeatedRelease" + onSQLite},
	{usurp, " AND session <> ''", "", "TestNoUsurpingOfALeaderWithoutASession/postgres"},
	{usurp, "AND lock_by = :seen", "", "TestNoUsurpingOfALeaderWithoutASession/postgres"},
	{usurp, " AND fence = :seen_fence", "", "TestNoUsurpingOfALeaderWithoutASession/postgres"},
	{enqueue, "waiters[1] <> :me AND", "", "TestQueuePassesOn/postgres"},
	{take, " AND ({int :inturn} = 0 OR waiting_until IS NULL OR waiting_until <= {now} OR cardinality(waiters) = 0 OR waiters[1] = :me)", "", "TestWaitersKeepTheirPlaces/postgres"},
	{passOver, " AND waiters[1] <> :me", "", "TestQueuePassesOn/postgres"},
	{passOver, "AND update_time <= {now + -50000}", "", "TestQueuePassesOn/postgres"},
	{passOver, " AND (state = 'FREE' OR expire_at <= {now + -50000})", "", "TestWaitersKeepTheirPlaces/postgres"},
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
