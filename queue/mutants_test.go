package queue

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A mutant is a statement that lacks a guard, and the test that finds that out.
type mutant struct {
	stmt         *dialect.Stmt
	old, changed string
	test         string // to run; default: what TestReach says of the statement
}

const (
	onSQLite   = "/sqlite"
	onPostgres = "/postgres"
	onMySQL    = "/mariadb"
)

// What the statements have in common.
const (
	always = "1 = 1"

	ofNode     = "lock_by = :node"
	ofFence    = "fence = :fence"
	ofQueue    = "queue_id = :queue AND "
	ofState    = " AND state = 'live'"
	ofItsNode  = "n.name = lock_by AND "
	ifLive     = " AND n.state = 'live'"
	dead       = "NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = lock_by AND n.state = 'live')"
	suspicious = "suspects = CASE WHEN state = 'FREE' OR {int :left} = 1 THEN 0 ELSE suspects + 1 END"
	crashed    = "crashes = crashes + CASE WHEN state = 'handed' THEN 0 ELSE 1 END"
	movedQueue = "j.queue_id = record.queue AND "
	movedBlock = "j.divided = record.block AND "
	movedPrio  = "j.priority = record.urgency"
	movedID    = "j.id = record.job"
	delayedRow = "{prefix}job_delayed."
	ofThisName = " AND unique_key IN (SELECT once FROM {records keys: once text})"
)

var mutants = append(deaf(), []mutant{
	// Queues.
	{getQueue, "b.queue_id = q.queue_id", always, "TestBlocksOfQueues" + onSQLite},
	{getQueue, "MIN(b.divided)", "MAX(b.divided)", "TestBlocksOfQueues" + onSQLite},
	{getQueue, ", b.generation ORDER BY q.name, b.generation", ", b.generation ORDER BY b.generation DESC", "TestBlocksOfQueues" + onSQLite},
	{listQueues, "name > :after", "name >= :after", "TestEdit" + onSQLite},
	{lockQueue, "b.queue_id = q.queue_id", always, "TestBlocksOfQueues" + onSQLite},
	{lockQueue, "{locked}", "", "TestLocks" + onPostgres},
	{listRoutes, "kind > :after", "kind >= :after", "TestRoutes" + onSQLite},
	{updateRoute, " WHERE kind = :kind", "", "TestRoutes" + onSQLite},
	{deleteRoute, " WHERE kind = :kind", "", "TestRoutes" + onSQLite},
	{usesOf, "{prefix}job WHERE queue_id = :queue", "{prefix}job WHERE " + always, "TestDeleteQueue" + onSQLite},
	{usesOf, "{prefix}job_delayed WHERE queue_id = :queue", "{prefix}job_delayed WHERE " + always, "TestDeleteQueue" + onSQLite},
	{usesOf, "{prefix}job_running WHERE queue_id = :queue", "{prefix}job_running WHERE " + always, "TestDeleteQueue" + onSQLite},
	{usesOf, "{prefix}job_dead WHERE queue_id = :queue", "{prefix}job_dead WHERE " + always, "TestDeleteQueue" + onSQLite},
	{usesOf, "{prefix}route WHERE queue = :name", "{prefix}route WHERE " + always, "TestDeleteQueue" + onSQLite},
	{markDeleted, " WHERE queue_id = :queue", "", "TestDeleteQueue" + onSQLite},
	{createQueue, "{ignore_duplicate name}", "", "TestOnce" + onSQLite},
	{setOrdered, " AND ordered <> 'yes'", "", "TestOnce" + onSQLite},

	// Limits.
	{listLimits, "q.name = :after AND l.kind > :kind", "q.name = :after", "TestEditLimit" + onSQLite},
	{listLimits, "l.queue_id AND p.kind = l.kind", "l.queue_id", "TestPermits" + onSQLite},
	{limitsNamed, "WHERE q.name = :name", "WHERE " + always, "TestEditLimit" + onSQLite},
	{updateLimit, " AND kind = :kind", "", "TestEditLimit" + onSQLite},
	{deleteLimit, " AND kind = :kind", "", "TestEditLimit" + onSQLite},
	{takePermit, " AND kind = :kind", "", "TestPermits" + onSQLite},
	{takePermit, " AND slot = :slot", "", "TestPermits" + onSQLite},
	{takePermit, " AND fence = :fence", "", "TestPermits" + onSQLite},
	{takePermit, "state = 'FREE' OR ", "", "TestPermits" + onSQLite},
	{takePermit, dead, always, "TestPermits" + onSQLite},
	{returnPermit, " AND fence = :fence", "", "TestPermits" + onSQLite},
	{returnPermit, " AND lock_by = :node", "", "TestPermits" + onSQLite},
	{waitForPermit, " AND kind = :kind", "", "TestPermits" + onSQLite},
	{waitForPermit, "waiting_until < {now + :soon}", always, "TestPermits" + onSQLite},
	{sweepPermits, "state = 'FREE' OR " + dead, always, "TestPermits" + onSQLite},
	{sweepPermits, " OR " + dead, "", "TestPermits" + onSQLite},
	{sweepPermits, " AND l.kind = {prefix}queue_permit.kind", "", "TestPermits" + onSQLite},
	{sweepPermits, "l.queue_id = {prefix}queue_permit.queue_id AND ", "", "TestPermits" + onSQLite},
	{lockLimit, "{locked}", "", "TestDrawLocks" + onPostgres},
	{lockLimit, " AND kind = :kind", "", "TestDrawTogether" + onSQLite},

	// Nodes.
	{heartbeat, "name = :node AND ", "", "TestNodes" + onSQLite + "/queue.heartbeat"},
	{heartbeat, ofState, "", "TestNodes" + onSQLite + "/queue.heartbeat"},
	{heartbeat, " AND expire_at > {now}", "", "TestNodes" + onSQLite + "/queue.heartbeat"},
	{expel, "name = :node AND ", "", "TestNodes" + onSQLite + "/queue.expel"},
	{expel, ofState, "", "TestNodes" + onSQLite + "/queue.expel"},
	{expel, " AND expire_at <= {now}", "", "TestNodes" + onSQLite + "/queue.expel"},
	{succeed, "under = :under AND ", "", "TestNodes" + onSQLite + "/succeed"},
	{succeed, " AND state = 'live'", "", "TestNodes" + onSQLite + "/succeed"},
	{resign, "under = :under AND ", "", "TestNodes" + onSQLite + "/succeed"},
	{resign, " AND state = 'live'", "", "TestNodes" + onSQLite + "/succeed"},
	{leave, "name = :node AND ", "", "TestNodes" + onSQLite + "/queue.leave"},
	{leave, ofState, "", "TestNodes" + onSQLite + "/queue.leave"},
	{join, "{now + :lease}", "{now}", "TestNodes" + onSQLite + "/lease"},
	{heartbeat, "expire_at = {now + :lease}, ", "", "TestNodes" + onSQLite + "/lease"},
	{expelIdle, "state = 'live' AND ", "", "TestNodes" + onSQLite + "/forget"},
	{expelIdle, " AND expire_at < {now + :since}", "", "TestNodes" + onSQLite + "/forget"},
	{forgetNodes, "state <> 'live' AND ", "", "TestNodes" + onSQLite + "/forget"},
	{forgetNodes, " AND expire_at < {now + :since}", "", "TestNodes" + onSQLite + "/forget"},
	{forgetWorkers, "NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = node)", always, "TestNodes" + onSQLite + "/forget"},
	{forgetWorkers, " WHERE n.name = node", "", "TestNodes" + onSQLite + "/forget"},
	{register, "{ignore_duplicate node}", "", "TestOnce" + onSQLite},
	{workers, ifLive, "", ""},
	{workers, "n.expire_at > {now}", always, "TestWhoIsLive" + onSQLite},
	{workers, "ORDER BY w.node", "ORDER BY w.node DESC", "TestWhoIsLive" + onSQLite},

	// Blocks.
	{blocks, "LEFT JOIN", "JOIN", ""},
	{blocks, "n.state = 'live'", always, "TestWhoIsLive" + onSQLite},
	{blocks, "n.expire_at > {now}", always, "TestWhoIsLive" + onSQLite},
	{blocks, "n.state = 'gone'", always, "TestWhoIsLive" + onSQLite},
	{blocks, "ORDER BY b.divided", "ORDER BY b.divided DESC", "TestWhoIsLive" + onSQLite},
	{take, "(state = 'FREE' OR " + dead + ")", always, "TestTake" + onSQLite},
	{take, "state = 'FREE' OR NOT", "NOT", "TestTake" + onSQLite},
	{take, dead, "1 = 0", "TestTake" + onSQLite},
	{take, ofItsNode, "", "TestTake" + onSQLite},
	{take, ifLive, "", "TestTake" + onSQLite},
	{take, "fence = fence + 1", "fence = fence", "TestTake" + onSQLite},
	{take, "state = 'FREE' OR {int", "{int", "TestTake" + onSQLite},
	{take, " OR {int :left} = 1", "", "TestTake" + onSQLite},
	{take, "suspects + 1", "suspects", "TestTake" + onSQLite},
	{take, suspicious + ", state = 'LEASED'", "state = 'LEASED', " + suspicious, "TestTake" + onMySQL}, // assigns in this order
	{stillMine, ofFence, always, "TestMovesOfALostBlock" + onSQLite},
	{stillMine, ofNode, always, "TestMovesOfALostBlock" + onSQLite},
	{stillMine, "{share_locked}", "", "TestLocks" + onPostgres},
	{claimHolds, "queue_id = :queue AND ", "", ""},
	{claimHolds, "divided = :divided AND ", "", ""},
	{claimHolds, ofFence, always, ""},
	{claimHolds, ofNode, always, ""},
	{claimHolds, " AND state = 'LEASED'", "", "TestSettleStale" + onSQLite},
	{claimHolds, ofItsNode, "", "TestSettleStale" + onSQLite},
	{claimHolds, ifLive, "", "TestSettleStale" + onSQLite},
	{claimHolds, " AND n.expire_at > {now}", "", "TestSettleStale" + onSQLite},
	{claimHolds, "{share_locked}", "", "TestLocks" + onPostgres},
	{nodeLives, "name = :node AND ", "", ""},
	{nodeLives, ofState, "", "TestSettleStale" + onSQLite},
	{nodeLives, " AND expire_at > {now}", "", "TestSettleStale" + onSQLite},
	{claimedReady, "priority = :priority AND ", "", ""},
	{claimedRunning, " AND lock_by = :node", "", ""},
	{claimedRunning, "attempt - 1", "attempt", "TestSettleClaims" + onSQLite},
	{drained, "{prefix}job WHERE", "{prefix}job WHERE 1 = 0 AND", "TestDrained" + onSQLite},
	{drained, "{prefix}job_delayed WHERE", "{prefix}job_delayed WHERE 1 = 0 AND", "TestDrained" + onSQLite},
	{drained, "{prefix}job_running WHERE", "{prefix}job_running WHERE 1 = 0 AND", "TestDrained" + onSQLite},
	{drained, ofQueue + "divided", "divided", "TestDrained" + onSQLite},
	{drained, " AND divided >= :first", "", "TestDrained" + onSQLite},
	{drained, " AND divided <= :last", "", "TestDrained" + onSQLite},
	{drained, ofQueue + "generation", "generation", "TestDrained" + onSQLite},
	{drained, " AND generation > :generation", "", "TestDrained" + onSQLite},
	{drained, "MIN(insert_time)", "MAX(insert_time)", "TestDrained" + onSQLite},
	{strays, "queue_id = {int :queue} AND ", "", "TestDrained" + onSQLite},
	{strays, " AND divided > above", "", "TestDrained" + onSQLite},
	{strays, " AND divided < below", "", "TestDrained" + onSQLite},

	// Ready jobs.
	{fetch, "priority = 3 AND ", "", "TestFetch" + onSQLite},
	{fetch, " AND id > :after4", "", "TestFetch" + onSQLite},
	{fetch, "ORDER BY id", "ORDER BY id DESC", "TestFetch" + onSQLite},
	{lookFor, "divided = block AND ", "", ""},
	{lookFor, " AND id > after2", "", ""},
	{lockJobs, "{locked}", "", "TestLocks" + onPostgres},
	{lockJobs, movedQueue, "", ""},
	{lockJobs, movedBlock, "", ""},
	{lockJobs, movedPrio, always, ""},
	{lockJobs, movedID, always, ""},

	// Delayed jobs.
	{fetchDelayed, " AND run_at >= {time :since}", "", "TestDue" + onSQLite},
	{fetchDelayed, " AND run_at <= {now}", "", "TestDue" + onSQLite},
	{fetchDelayed, "ORDER BY run_at, id", "ORDER BY id", "TestDue" + onSQLite},
	{nextDelayed, "queue_id = {int :queue} AND ", "", "TestDue" + onSQLite},
	{nextDelayed, "divided = block AND ", "", "TestDue" + onSQLite},
	{nextDelayed, " AND run_at >= {time since}", "", "TestDue" + onSQLite},
	{nextDelayed, "divided, run_at, id LIMIT", "divided, id LIMIT", "TestDue" + onSQLite},
	{lockDelayed, "{locked}", "", "TestLocks" + onPostgres},
	{lockDelayed, movedQueue, "", ""},
	{lockDelayed, movedBlock, "", ""},
	{lockDelayed, movedID, always, ""},
	{held, " AND hold_key > ''", "", ""},

	// Running jobs.
	{runningJobs, "LEFT JOIN", "JOIN", ""},
	{runningJobs, "n.state = 'live'", always, "TestWhoIsLive" + onSQLite},
	{runningJobs, "n.expire_at > {now}", always, "TestWhoIsLive" + onSQLite},
	{adopt, "(state = 'handed' OR " + dead + ")", always, "TestAdopt" + onSQLite},
	{adopt, "state = 'handed' OR ", "", "TestAdopt" + onSQLite},
	{adopt, dead, "1 = 0", "TestAdopt" + onSQLite},
	{adopt, ofItsNode, "", "TestAdopt" + onSQLite},
	{adopt, ifLive, "", "TestAdopt" + onSQLite},
	{adopt, "CASE WHEN state = 'handed' THEN 0 ELSE 1 END", "1", "TestAdopt" + onSQLite},
	{adopt, "CASE WHEN state = 'handed' THEN 0 ELSE 1 END", "0", "TestAdopt" + onSQLite},
	{adopt, crashed + ", state = :state", "state = :state, " + crashed, "TestAdopt" + onMySQL},
	{adopt, " AND state = :was", "", "TestAdopt" + onSQLite},
	{adopt, ", state = :state, lock_by", ", lock_by", "TestAdopt" + onSQLite},
	{setTrial, " AND state <> 'handed'", "", "TestTrialOfTheHanded" + onSQLite},
	{lockRunning, "{locked}", "", "TestLocks" + onPostgres},
	{lockRunning, movedQueue, "", ""},
	{lockRunning, movedBlock, "", ""},
	{lockRunning, movedID, always, ""},

	// Progress.
	{saveProgress, " AND state <> 'handed'", "", "TestProgressOfTheLost" + onSQLite},
	{saveProgress, " AND attempt = :attempt", "", "TestProgressOfTheLost" + onSQLite},
	{delayRunning, "j.snapshot", "NULL", "TestProgress" + onSQLite},
	{redelay, "run_at = ", "snapshot = NULL, run_at = ", "TestProgress" + onSQLite},
	{buryRunning, "j.snapshot", "NULL", "TestProgress" + onSQLite},
	{buryDelayed, "j.snapshot", "NULL", "TestProgress" + onSQLite},
	{revive, "j.snapshot", "NULL", "TestProgress" + onSQLite},
	{checkOutDelayed, "j.snapshot", "NULL", "TestProgressFaults" + onSQLite},
	{divideAnew, "j.snapshot", "NULL", "TestProgressOfTheMoved" + onSQLite},

	// Moves.
	{delayReady, movedPrio, always, ""},
	{delayReady, movedID, always, ""},
	{delayReady, movedQueue, "", ""},
	{delayReady, movedBlock, "", ""},
	{delayRunning, movedID, always, ""},
	{delayRunning, movedQueue, "", ""},
	{delayRunning, movedBlock, "", ""},
	{redelay, delayedRow + "queue_id = picked.queue_id AND ", "", ""},
	{redelay, delayedRow + "divided = picked.divided AND ", "", ""},
	{redelay, " AND " + delayedRow + "id = picked.id", "", ""},
	{divideAnew, movedQueue, "", ""},
	{divideAnew, movedBlock, "", ""},
	{divideAnew, movedID, always, ""},
	{passReady, movedQueue, "", ""},
	{passReady, movedBlock, "", ""},
	{passReady, movedPrio, always, ""},
	{passReady, movedID, always, ""},
	{passKeys, ofQueue, "", "TestMove" + onSQLite},
	{passKeys, "{in job :ids}", always, "TestSameIDMove" + onSQLite},
	{standReady, "ORDER BY id", "ORDER BY id DESC", "TestMoveOfALostBlock" + onSQLite},
	{lockLater, " AND run_at > {now + :soon}", "", ""},
	{lockLater, " AND (hold_key > '') IS NOT TRUE", "", "TestForward" + onSQLite},
	{lockLater, "{locked}", "", "TestLocks" + onPostgres},
	{buryReady, movedPrio, always, ""},
	{buryReady, movedID, always, ""},
	{buryReady, movedQueue, "", ""},
	{buryReady, movedBlock, "", ""},
	{buryReady, "CASE WHEN {int :keep} < 0 THEN NULL ELSE {now + :keep} END", "{now + :keep}", "TestKept" + onSQLite},
	{buryDelayed, movedID, always, ""},
	{buryDelayed, movedQueue, "", ""},
	{buryDelayed, movedBlock, "", ""},
	{buryRunning, movedID, always, ""},
	{buryRunning, movedQueue, "", ""},
	{buryRunning, movedBlock, "", ""},
	{checkOutReady, movedPrio, always, ""},
	{checkOutReady, movedID, always, ""},
	{checkOutReady, movedQueue, "", ""},
	{checkOutReady, movedBlock, "", ""},
	{checkOutDelayed, movedID, always, ""},
	{checkOutDelayed, movedQueue, "", ""},
	{checkOutDelayed, movedBlock, "", ""},

	// What is done, and kept.
	{keepReady, movedPrio, always, ""},
	{keepReady, movedID, always, ""},
	{keepReady, movedQueue, "", ""},
	{keepReady, movedBlock, "", ""},
	{keepReady, "{now + :keep}", "{now}", "TestKeptDone" + onSQLite},
	{keepDelayed, movedID, always, ""},
	{keepDelayed, movedQueue, "", ""},
	{keepDelayed, movedBlock, "", ""},
	{keepRunning, movedID, always, ""},
	{keepRunning, movedQueue, "", ""},
	{keepRunning, movedBlock, "", ""},
	{keepRunning, "j.snapshot", "NULL", "TestKeepDone" + onSQLite},
	{lockDone, "{locked}", "", "TestLocks" + onPostgres},
	{lockDone, movedQueue, "", ""},
	{lockDone, movedBlock, "", ""},
	{lockDone, movedID, always, ""},
	{outdatedDone, "purge_at <= {now}", "purge_at IS NOT NULL", "TestKeptDone" + onSQLite},
	{outdatedDone, "{skip_locked}", "", "TestLocks" + onPostgres},

	// Unique keys.
	{takeKeys, "{ignore_duplicate job}", "", "TestUnique" + onSQLite},
	{keyHolders, "u.queue_id = record.queue AND ", "", "TestKeyStatements" + onSQLite},
	{keyHolders, "u.pending = 'no' AND ", "", "TestUniqueFor" + onSQLite},
	{keyHolders, " AND u.free_at <= {now}", "", "TestKeyStatements" + onSQLite},
	{keyHolders, "{share_locked}", "", "TestUniqueOfOldSnapshots" + onMySQL},
	{takeOverKey, "queue_id = :queue AND ", "", "TestKeyStatements" + onSQLite},
	{takeOverKey, " AND unique_key = :once", "", "TestKeyStatements" + onSQLite},
	{takeOverKey, " AND job = :holder", "", "TestKeyStatements" + onSQLite},
	{takeOverKey, " AND pending = 'no'", "", "TestKeyStatements" + onSQLite},
	{takeOverKey, " AND free_at <= {now}", "", "TestKeyStatements" + onSQLite},
	{freeKeys, "queue_id = :queue AND ", "", "TestKeyStatements" + onSQLite},
	{freeKeys, "{in job :ids}", always, "TestKeyStatements" + onSQLite},
	{freeKeys, " OR free_at <= {now}", "", "TestKeyStatements" + onSQLite},
	{freeKeys, ofThisName, "", "TestKeyStatements" + onSQLite},
	{parting, ofThisName, "", "TestKeyStatements" + onSQLite},
	{keepKeys, ofThisName, "", "TestKeyStatements" + onSQLite},
	{passKeys, ofThisName, "", "TestSameIDMove" + onSQLite},
	{keysUntil, ofThisName, "", "TestSameIDMove" + onSQLite},
	{freeKeys, " AND (free_at IS NULL OR free_at <= {now})", "", "TestKeyStatements" + onSQLite},
	{parting, "queue_id = :queue AND ", "", "TestKeyStatements" + onSQLite},
	{parting, "{in job :ids}", always, "TestKeyStatements" + onSQLite},
	{keepKeys, "queue_id = :queue AND ", "", "TestKeyStatements" + onSQLite},
	{keepKeys, "{in job :ids}", always, "TestKeyStatements" + onSQLite},
	{oldKeys, "pending = 'no' AND ", "", "TestKeyStatements" + onSQLite},
	{oldKeys, "free_at <= {now}", "free_at IS NOT NULL", "TestKeyStatements" + onSQLite},
	{purgeKeys, "queue_id = :queue AND ", "", "TestKeyStatements" + onSQLite},
	{purgeKeys, "{in job :ids}", always, "TestKeyStatements" + onSQLite},
	{purgeKeys, " AND pending = 'no'", "", "TestKeyStatements" + onSQLite},
	{purgeKeys, " AND free_at <= {now}", "", "TestKeyStatements" + onSQLite},

	// Groups.
	{enterGroup, "{share_locked}", "", "TestGroupLocks" + onPostgres},
	{lockGroup, "{locked}", "", "TestGroupLocks" + onPostgres},
	{finishMembers, "{prefix}job_member.group_id = picked.group_id", always, "TestGroupStatements" + onSQLite},
	{finishMembers, "{prefix}job_member.job = picked.job", always, "TestGroupStatements" + onSQLite},
	{seal, "id = :group AND ", "", "TestGroupStatements" + onSQLite},
	{seal, " AND state = 'open'", "", "TestGroupStatements" + onSQLite},
	{lockGroup, " AND state = 'sealed'", "", "TestGroupStatements" + onSQLite},
	{ripeGroups, "g.state = 'sealed' AND ", "", "TestGroupStatements" + onSQLite},
	{ripeGroups, "m.group_id = g.id AND ", "", "TestGroupStatements" + onSQLite},
	{ripeGroups, " AND m.state = 'pending'", "", "TestGroupStatements" + onSQLite},
	{ripeAny, "g.state = 'sealed' AND ", "", "TestGroupStatements" + onSQLite},
	{endGroup, "id = :group AND state", "state", "TestGroupStatements" + onSQLite},
	{endGroup, " AND state = 'sealed'", "", "TestGroupStatements" + onSQLite},
	{endGroup, "m.group_id = :group AND ", "", "TestGroupStatements" + onSQLite},
	{endGroup, " AND m.state = 'pending'", "", "TestGroupStatements" + onSQLite},
	{dropGroup, " WHERE id = :group", "", "TestGroupStatements" + onSQLite},
	{accuseGroup, " WHERE id = :group", "", "TestGroupStatements" + onSQLite},
	{purgeMembers, "group_id = :group AND ", "", "TestGroupStatements" + onSQLite},
	{purgeMembers, "{in job :ids}", always, "TestGroupStatements" + onSQLite},
	{purgeGroup, "id = :group AND ", "", "TestGroupStatements" + onSQLite},
	{purgeGroup, " AND purge_at <= {now}", "", "TestGroupStatements" + onSQLite},
	{oldGroups, "purge_at <= {now}", "purge_at IS NOT NULL", "TestOldGroups" + onSQLite},

	// Topics.
	{subscribe, "{ignore_duplicate queue}", "", "TestPublish" + onSQLite},
	{unsubscribe, "topic = :topic AND ", "", "TestTopicStatements" + onSQLite},
	{unsubscribe, " AND queue = :subscriber", "", "TestTopicStatements" + onSQLite},
	{subscribed, "topic = :topic AND ", "", "TestPublish" + onSQLite},
	{subscribed, " AND q.state = 'deleted'", "", "TestPublish" + onSQLite},
	{subscribed, "q.name = t.queue AND ", "", "TestPublish" + onSQLite},
	{listSubscriptions, "topic = :topic AND ", "", "TestPublish" + onSQLite},
	{listSubscriptions, " AND queue > :subscriber", "", "TestPublish" + onSQLite},

	// Counts.
	{sumCounts, "q.queue_id = c.queue_id", always, "TestCounts" + onSQLite},
	{minuteCounts, "q.queue_id = c.queue_id", always, "TestCounts" + onSQLite},
	{purgeCounts, " WHERE minute < {now + :since}", "", "TestCounts" + onSQLite},

	// What people and programs ask.
	{statReady, ":divided", "3", ""},
	{statReady, ":priority", "2", ""},
	{statReady, "ORDER BY id", "ORDER BY id DESC", "TestStats" + onSQLite},
	{statReady, "LIMIT :limit", "LIMIT 1000", "TestStats" + onSQLite},
	{statDelayed, ":divided", "3", ""},
	{statRunning, ":divided", "3", ""},
	{statDead, "LIMIT :limit", "LIMIT 1000", "TestStats" + onSQLite},
	{locate, "j.queue_id = b.queue_id AND j.divided", "j.divided", "TestFind" + onSQLite},
	{locate, "j.queue_id = b.queue_id AND j.id", "j.id", "TestFind" + onSQLite},
	{locate, " AND j.divided = b.divided", "", "TestFind" + onSQLite},
	{locate, " AND j.id = :id", "", "TestFind" + onSQLite},
	{locate, " AND j.priority = 4", "", "TestFind" + onSQLite},
	{locate, "b.queue_id >= :first AND ", "", "TestFind" + onSQLite},
	{locate, " AND b.queue_id <= :last", "", "TestFind" + onSQLite},
	{hasten, delayedRow + "run_at > {now}", "", "TestOnce" + onSQLite},
	{hasten, delayedRow + "queue_id = picked.queue_id AND ", "", ""},
	{hasten, delayedRow + "divided = picked.divided AND ", "", ""},
	{hasten, " AND " + delayedRow + "id = picked.id", "", ""},
	{revive, movedQueue, "", ""},
	{revive, movedID, always, ""},
	{pending, "b.queue_id = :queue", always, "TestPending" + onSQLite},
	{pending, "j.queue_id = b.queue_id", always, "TestPending" + onSQLite},
	{pending, "j.divided = b.divided", always, "TestPending" + onSQLite},
	{pending, " AND j.run_at <= {now}", "", "TestPending" + onSQLite},
	{pending, " AND h.run_at > {now}", "", "TestPending" + onSQLite},
	{pending, "h.queue_id = j.queue_id", always, "TestPending" + onSQLite},
	{pending, "h.divided = j.divided", always, "TestPending" + onSQLite},
	{pending, "h.hold_key = j.job_key", always, "TestPending" + onSQLite},
	{pending, "r.queue_id = j.queue_id", always, "TestPending" + onSQLite},
	{pending, "r.divided = j.divided", always, "TestPending" + onSQLite},
	{pending, "r.job_key = j.job_key", always, "TestPending" + onSQLite},
	{lockOut, "{locked}", "", "TestLocks" + onPostgres},
	{lockOut, movedQueue, "", ""},
	{lockOut, movedBlock, "", ""},
	{lockOut, movedID, always, ""},
	{lockDead, "{locked}", "", "TestLocks" + onPostgres},
	{lockDead, movedQueue, "", ""},
	{lockDead, movedBlock, "", ""},
	{lockDead, movedID, always, ""},
	{outdated, "purge_at <= {now}", "purge_at IS NOT NULL", "TestKept" + onSQLite},
	{outdated, "{skip_locked}", "", "TestLocks" + onPostgres},
	{surplus, "ORDER BY id DESC", "ORDER BY id", "TestKeepDeadMax" + onSQLite},
	{surplusDead, " AND id <= :most", "", "TestKeepDeadMax" + onSQLite},
	{surplusDead, "{skip_locked}", "", "TestLocks" + onPostgres},
}...)

// deaf are mutants that do not listen to one of the arguments of TestReach: its value
// stands in its place.
func deaf() (all []mutant) {
	for _, r := range reaches {
		values := told(r.at)
		maps.Copy(values, r.with)
		for name := range strings.SplitSeq(r.named, ", ") {
			old, changed := ":"+name, fmt.Sprint(values[name])
			switch name {
			case "name", "node", "from":
				changed = "'" + changed + "'"
			case "ids":
				old, changed = "{in id :ids}", always
			}
			if !strings.Contains(name, "'s ") { // see above
				all = append(all, mutant{r.stmt, old, changed, ""})
			}
		}
	}
	return all
}

// forProgram are the mutants for dbtest.
func forProgram() (all []dbtest.Mutant) {
	for _, m := range mutants {
		all = append(all, dbtest.Mutant{Stmt: m.stmt, Old: m.old, Changed: m.changed, Test: cmp.Or(m.test, "TestReach"+onSQLite)})
	}
	return all
}

// Each guard that a statement has is there because something breaks without it.
func TestMutants(t *testing.T) { dbtest.TestMutants(t, forProgram()) }
