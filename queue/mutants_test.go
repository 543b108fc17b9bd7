package queue

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A mutant is a statement that lacks a guard, and the test that finds that out.
type mutant struct {
	stmt         *sqlrun.Stmt
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
	movedQueue = "j.queue_id = record.queue AND "
	movedBlock = "j.divided = record.block AND "
	movedPrio  = "j.priority = record.priority"
	movedID    = "j.id = record.job"
	delayedRow = "{prefix}job_delayed."
	blockRow   = "{prefix}queue_block."
	ofThisName = " AND {in unique_key text :uniques}"
)

var mutants = append(deaf(), []mutant{
	// Queues.
	{store.GetQueue, "b.queue_id = q.queue_id", always, "TestBlocksOfQueues" + onSQLite},
	{store.GetQueue, "MIN(b.divided)", "MAX(b.divided)", "TestBlocksOfQueues" + onSQLite},
	{store.GetQueue, ", b.generation ORDER BY q.name, b.generation", ", b.generation ORDER BY b.generation DESC", "TestBlocksOfQueues" + onSQLite},
	{store.ListQueues, "name > :after", "name >= :after", "TestEdit" + onSQLite},
	{store.LockQueue, "{locked}", "", "TestLocks" + onPostgres},
	{store.LockQueues, "b.queue_id = q.queue_id", always, "TestCreateMany" + onSQLite},
	{store.LockQueues, "{locked}", "", "TestLocks" + onPostgres},
	{store.ListRoutes, "kind > :after", "kind >= :after", "TestRoutes" + onSQLite},
	{store.UpdateRoute, " WHERE kind = :kind", "", "TestRoutes" + onSQLite},
	{store.DeleteRoute, " WHERE kind = :kind", "", "TestRoutes" + onSQLite},
	{store.QueueUses, "{prefix}job WHERE queue_id = :queue", "{prefix}job WHERE " + always, "TestDeleteQueue" + onSQLite},
	{store.QueueUses, "{prefix}job_delayed WHERE queue_id = :queue", "{prefix}job_delayed WHERE " + always, "TestDeleteQueue" + onSQLite},
	{store.QueueUses, "{prefix}job_running WHERE queue_id = :queue", "{prefix}job_running WHERE " + always, "TestDeleteQueue" + onSQLite},
	{store.QueueUses, "{prefix}job_dead WHERE queue_id = :queue", "{prefix}job_dead WHERE " + always, "TestDeleteQueue" + onSQLite},
	{store.QueueUses, "{prefix}route WHERE queue = :name", "{prefix}route WHERE " + always, "TestDeleteQueue" + onSQLite},
	{store.MarkDeleted, " WHERE queue_id = :queue", "", "TestDeleteQueue" + onSQLite},
	{store.CreateQueues, "{ignore_duplicate name}", "", "TestOnce" + onSQLite},
	{store.SetOrdered, " AND ordered <> 'yes'", "", "TestOnce" + onSQLite},

	// Limits.
	{store.ListLimits, "l.kind > :kind OR l.kind = :kind AND l.tenant > :tenant", always, "TestEditLimit" + onSQLite},
	{store.ListLimits, "l.queue_id AND p.kind = l.kind", "l.queue_id", "TestPermits" + onSQLite},
	{store.LimitsNamed, "p.tenant = l.tenant OR ", "", "TestTenantPermits" + onSQLite},
	{store.LimitsNamed, " AND p.tenant <> ''", "", "TestTenantPermits" + onSQLite},
	{store.LimitsNamed, "l.tenant = t.tenant OR ", "", "TestTenantPermits" + onSQLite},
	{store.LimitsNamed, "WHERE q.name = :name", "WHERE " + always, "TestEditLimit" + onSQLite},
	{store.UpdateLimit, " AND kind = :kind", "", "TestEditLimit" + onSQLite},
	{store.DeleteLimit, " AND kind = :kind", "", "TestEditLimit" + onSQLite},
	{store.UpdateLimit, " AND tenant = :tenant", "", "TestEditLimit" + onSQLite},
	{store.DeleteLimit, " AND tenant = :tenant", "", "TestEditLimit" + onSQLite},
	{store.TakePermit, " AND kind = :kind", "", "TestPermits" + onSQLite},
	{store.TakePermit, " AND slot = :slot", "", "TestPermits" + onSQLite},
	{store.TakePermit, " AND fence = :fence", "", "TestPermits" + onSQLite},
	{store.TakePermit, "state = 'FREE' OR ", "", "TestPermits" + onSQLite},
	{store.TakePermit, dead, always, "TestPermits" + onSQLite},
	{store.ReturnPermit, " AND fence = :fence", "", "TestPermits" + onSQLite},
	{store.ReturnPermit, " AND lock_by = :node", "", "TestPermits" + onSQLite},
	{store.WaitForPermit, " AND kind = :kind", "", "TestPermits" + onSQLite},
	{store.WaitForPermit, " AND (waiting_until IS NULL OR waiting_until < {now + :soon} OR waiting_until > {now + 60000000})", "", "TestPermits" + onSQLite},
	{store.SweepPermits, "state = 'FREE' OR " + dead, always, "TestPermits" + onSQLite},
	{store.SweepPermits, " OR " + dead, "", "TestPermits" + onSQLite},
	{store.SweepPermits, "tenant <> '' OR ", "", "TestTenantPermits" + onSQLite},
	{store.Permits, " AND p.tenant = ''", "", "TestTenantPermits" + onSQLite},
	{store.TenantPermits, " AND p.tenant = record.name", "", "TestTenantPermits" + onSQLite},
	{store.TenantPermits, "n.name = p.lock_by", always, "TestTenantPermits" + onSQLite},
	{store.TakenTenantPermits, " AND p.tenant = record.name", "", "TestTenantPermits" + onSQLite},
	{store.TakenTenantPermits, "p.lock_by = :node AND ", "", "TestTenantPermits" + onSQLite},
	{store.TakenTenantPermits, " AND p.fence = :fence", "", "TestTenantPermits" + onSQLite},
	{store.ReturnTenantPermits, "p.fence = record.held AND ", "", "TestTenantPermits" + onSQLite},
	{store.ReturnTenantPermits, " AND p.lock_by = record.who", "", "TestTenantPermits" + onSQLite},
	{store.ReturnTenantPermits, " AND p.slot = record.nth", "", "TestTenantPermits" + onSQLite},
	{store.OwnTenantPermits, " AND lock_by = :node", "", "TestTenantPermits" + onSQLite},
	{store.OwnTenantPermits, "queue_id = :queue AND ", "", "TestTenantPermits" + onSQLite},
	{store.WaitForTenants, "t.waiting_until < {now + :soon}", always, "TestTenantPermits" + onSQLite},
	{store.WaitForTenants, " OR t.waiting_until > {now + 60000000}", "", "TestTenantPermits" + onSQLite},
	{store.WaitingTenants, " AND t.waiting_until <= {now + 60000000}", "", "TestTenantPermits" + onSQLite},
	{store.WaitForPermit, " OR waiting_until > {now + 60000000}", "", "TestPermits" + onSQLite},
	{store.WaitForTenants, " AND t.tenant = record.name", "", "TestTenantPermits" + onSQLite},
	{store.WaitingTenants, "CASE WHEN t.waiting_until > {now} AND t.waiting_until <= {now + 60000000} THEN t.waiting_by ELSE '' END", "t.waiting_by", "TestTenantPermits" + onSQLite},
	{store.SweepTenants, "insert_time < {now + :since} AND ", "", "TestTenantPermits" + onSQLite},
	{store.SweepTenants, "(full_at IS NULL OR full_at < {now}) AND ", "", "TestTenantPermits" + onSQLite},
	{store.SweepTenants, " AND (waiting_until IS NULL OR NOT (waiting_until > {now} AND waiting_until <= {now + 60000000}))", "", "TestTenantPermits" + onSQLite},
	{store.SweepPermits, " AND l.kind = {prefix}queue_permit.kind", "", "TestPermits" + onSQLite},
	{store.SweepPermits, "l.queue_id = {prefix}queue_permit.queue_id AND ", "", "TestPermits" + onSQLite},
	{store.LockLimit, "{locked}", "", "TestDrawLocks" + onPostgres},
	{store.LockLimit, " AND kind = :kind", "", "TestDrawTogether" + onSQLite},

	// Nodes.
	{store.TellWorkers, "w.queue_id = record.queue", always, "TestTellsWhoLives" + onPostgres},
	{store.TellWorkers, "n.state = 'live' AND ", "", "TestTellsWhoLives" + onPostgres},
	{store.TellWorkers, "n.state = 'live' AND n.expire_at > {now}", "n.state = 'live'", "TestTellsWhoLives" + onPostgres},
	{store.Heartbeat, "name IN (:nodes) AND ", "", "TestNodes" + onSQLite + "/queue.heartbeat"},
	{store.Heartbeat, ofState, "", "TestNodes" + onSQLite + "/queue.heartbeat"},
	{store.Heartbeat, " AND expire_at > {now}", "", "TestNodes" + onSQLite + "/queue.heartbeat"},
	{store.ExpelNode, "name = :node AND ", "", "TestNodes" + onSQLite + "/queue.expel"},
	{store.ExpelNode, ofState, "", "TestNodes" + onSQLite + "/queue.expel"},
	{store.ExpelNode, " AND expire_at <= {now}", "", "TestNodes" + onSQLite + "/queue.expel"},
	{store.SucceedNodes, "under = :under AND ", "", "TestNodes" + onSQLite + "/succeed"},
	{store.SucceedNodes, " AND state = 'live'", "", "TestNodes" + onSQLite + "/succeed"},
	{store.ResignNodes, "under = :under AND ", "", "TestNodes" + onSQLite + "/succeed"},
	{store.ResignNodes, " AND state = 'live'", "", "TestNodes" + onSQLite + "/succeed"},
	{store.LeaveNode, "name = :node AND ", "", "TestNodes" + onSQLite + "/queue.leave"},
	{store.LeaveNode, " AND state <> 'gone'", "", "TestNodes" + onSQLite + "/queue.leave"},
	{store.JoinNode, "{now + :lease}", "{now}", "TestNodes" + onSQLite + "/lease"},
	{store.Heartbeat, "expire_at = {now + :lease}, ", "", "TestNodes" + onSQLite + "/lease"},
	{store.ExpelIdleNodes, "state = 'live' AND ", "", "TestNodes" + onSQLite + "/forget"},
	{store.ExpelIdleNodes, " AND expire_at < {now + :since}", "", "TestNodes" + onSQLite + "/forget"},
	{store.ForgetNodes, "state <> 'live' AND ", "", "TestNodes" + onSQLite + "/forget"},
	{store.ForgetNodes, " AND expire_at < {now + :since}", "", "TestNodes" + onSQLite + "/forget"},
	{store.ForgetWorkers, "NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = node)", always, "TestNodes" + onSQLite + "/forget"},
	{store.ForgetWorkers, " WHERE n.name = node", "", "TestNodes" + onSQLite + "/forget"},
	{store.RegisterWorker, "{ignore_duplicate node}", "", "TestOnce" + onSQLite},
	{store.ListWorkers, ifLive, "", ""},
	{store.ListWorkers, "n.expire_at > {now}", always, "TestWhoIsLive" + onSQLite},
	{store.ListWorkers, "w.queue_id, w.node", "w.queue_id, w.node DESC", "TestWhoIsLive" + onSQLite},
	{store.Pulse, " WHERE state = 'live'", "", "TestBeat" + onSQLite},
	{store.Pulse, "expire_at > {now} THEN 0", "expire_at > {now} THEN 1", "TestBeat" + onSQLite},
	{store.Pulse, "drained_at IS NULL THEN 0", "drained_at IS NULL THEN 1", "TestBeat" + onSQLite},
	{store.Pulse, "MAX(started_at)", "MIN(started_at)", "TestBeat" + onSQLite},
	{store.LimitsOf, "{in queue_id :queues}", always, "TestRoundsOfManyQueues" + onSQLite},

	// Blocks.
	{store.ListBlocks, "LEFT JOIN", "JOIN", ""},
	{store.ListBlocks, "n.state = 'live'", always, "TestWhoIsLive" + onSQLite},
	{store.ListBlocks, "n.expire_at > {now}", always, "TestWhoIsLive" + onSQLite},
	{store.ListBlocks, "n.state = 'gone'", always, "TestWhoIsLive" + onSQLite},
	{store.ListBlocks, "b.queue_id, b.divided", "b.queue_id, b.divided DESC", "TestWhoIsLive" + onSQLite},
	{store.FreeBlocks, "b.fence = record.seen AND ", "", "TestTake" + onSQLite},
	{store.FreeBlocks, " AND b.state = record.was", "", "TestTake" + onSQLite},
	{store.FreeBlocks, "b.queue_id = record.queue AND ", "", "TestTake" + onSQLite},
	{store.FreeBlocks, "b.state = 'FREE' OR ", "", "TestTake" + onSQLite},
	{store.FreeBlocks, "NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = b.lock_by AND n.state = 'live')", always, "TestTake" + onSQLite},
	{store.FreeBlocks, "n.name = b.lock_by AND ", "", "TestTake" + onSQLite},
	{store.FreeBlocks, ifLive, "", "TestTake" + onSQLite},
	{store.FreeBlocks, " {skip_locked}", "", "TestRoundsPassAStranger" + onPostgres},
	{store.TakeBlocks, blockRow + "queue_id = picked.queue_id AND ", "", "TestTake" + onSQLite},
	{store.TakeBlocks, "fence = fence + 1", "fence = fence", "TestTake" + onSQLite},
	{store.TakeBlocks, " WHEN 1 THEN", " WHEN 0 THEN", "TestTake" + onSQLite},
	{store.TakeBlocks, "WHEN 2 THEN suspects", "WHEN 2 THEN 0", "TestTake" + onSQLite},
	{store.TakeBlocks, "suspects + 1", "suspects", "TestTake" + onSQLite},
	{store.HandOverBlocks, blockRow + "fence = picked.held AND ", "", ""},
	{store.HandOverBlocks, blockRow + "queue_id = picked.queue_id AND ", "", "TestOthersBlocksStay" + onSQLite},
	{store.HandOverBlocks, " AND " + blockRow + "divided = picked.divided", "", "TestOthersBlocksStay" + onSQLite},
	{store.TrustBlocks, blockRow + "fence = picked.held AND ", "", ""},
	{store.TrustBlocks, blockRow + "queue_id = picked.queue_id AND ", "", "TestOthersBlocksStay" + onSQLite},
	{store.TrustBlocks, " AND " + blockRow + "divided = picked.divided", "", "TestOthersBlocksStay" + onSQLite},
	{store.StillMine, ofFence, always, "TestMovesOfALostBlock" + onSQLite},
	{store.StillMine, ofNode, always, "TestMovesOfALostBlock" + onSQLite},
	{store.StillMine, "{share_locked}", "", "TestLocks" + onPostgres},
	{store.ClaimHolds, "queue_id = :queue AND ", "", ""},
	{store.ClaimHolds, "divided = :divided AND ", "", ""},
	{store.ClaimHolds, ofFence, always, ""},
	{store.ClaimHolds, ofNode, always, ""},
	{store.ClaimHolds, " AND state = 'LEASED'", "", "TestSettleStale" + onSQLite},
	{store.ClaimHolds, ofItsNode, "", "TestSettleStale" + onSQLite},
	{store.ClaimHolds, ifLive, "", "TestSettleStale" + onSQLite},
	{store.ClaimHolds, " AND n.expire_at > {now}", "", "TestSettleStale" + onSQLite},
	{store.ClaimHolds, "{share_locked}", "", "TestLocks" + onPostgres},
	{store.NodeLives, "name = :node AND ", "", ""},
	{store.NodeLives, ofState, "", "TestSettleStale" + onSQLite},
	{store.NodeLives, " AND expire_at > {now}", "", "TestSettleStale" + onSQLite},
	{store.ClaimedReady, "priority = :priority AND ", "", ""},
	{store.ClaimedRunning, " AND lock_by = :node", "", ""},
	{store.ClaimedRunning, "attempt - 1", "attempt", "TestSettleClaims" + onSQLite},
	{store.DrainedBlocks, "{prefix}job WHERE", "{prefix}job WHERE 1 = 0 AND", "TestDrained" + onSQLite},
	{store.DrainedBlocks, "{prefix}job_delayed WHERE", "{prefix}job_delayed WHERE 1 = 0 AND", "TestDrained" + onSQLite},
	{store.DrainedBlocks, "{prefix}job_running WHERE", "{prefix}job_running WHERE 1 = 0 AND", "TestDrained" + onSQLite},
	{store.DrainedBlocks, ofQueue + "divided", "divided", "TestDrained" + onSQLite},
	{store.DrainedBlocks, " AND divided >= :first", "", "TestDrained" + onSQLite},
	{store.DrainedBlocks, " AND divided <= :last", "", "TestDrained" + onSQLite},
	{store.DrainedBlocks, ofQueue + "generation", "generation", "TestDrained" + onSQLite},
	{store.DrainedBlocks, " AND generation > :generation", "", "TestDrained" + onSQLite},
	{store.DrainedBlocks, "MIN(insert_time)", "MAX(insert_time)", "TestDrained" + onSQLite},
	{store.StrayBlocks, "queue_id = {int :queue} AND ", "", "TestDrained" + onSQLite},
	{store.StrayBlocks, " AND divided > above", "", "TestDrained" + onSQLite},
	{store.StrayBlocks, " AND divided < below", "", "TestDrained" + onSQLite},

	// Sentinels.
	{store.QueueUses, "id > 0", always, "TestSentinels" + onSQLite},
	{store.LookForAny, "id > 0", always, "TestSentinels" + onSQLite},
	{store.StrayBlocks, "id > 0", always, "TestSentinels" + onSQLite},
	{store.DrainedBlocks, "id > 0", always, "TestSentinels" + onSQLite},
	{store.OtherKinds, "id > 0", always, "TestSentinels" + onSQLite},
	{store.CountReady, "id > 0", always, "TestSentinels" + onSQLite},
	{store.CountDelayed, "id > 0", always, "TestSentinels" + onSQLite},
	{store.StatReady, "id > 0", always, "TestSentinels" + onSQLite},
	{store.StatDelayed, "id > 0", always, "TestSentinels" + onSQLite},
	{store.LocateJob, "j.id > 0", always, "TestSentinels" + onSQLite},
	{store.NextDelayed, "id > 0", always, "TestSentinels" + onSQLite},
	{store.Failing, "j.id > 0", always, "TestSentinels" + onSQLite},
	{store.LockLater, "id > 0", always, "TestSentinels" + onSQLite},
	{store.PendingBlock, "j.id > 0", always, "TestSentinels" + onSQLite},
	{store.PendingKinds, "j.id > 0", always, "TestSentinels" + onSQLite},
	{store.PendingFIFO, "j.id > 0", always, "TestSentinels" + onSQLite},
	{store.PendingFIFOKinds, "j.id > 0", always, "TestSentinels" + onSQLite},
	{store.AdvanceDelayed, " WHERE id > 0", "", "TestSentinels" + onSQLite},
	{store.RemoveReadySentinels, " AND id = 0", "", "TestSentinelsAlone" + onSQLite},
	{store.RemoveReadySentinels, " AND divided = :divided", "", "TestSentinelsAlone" + onSQLite},
	{store.RemoveReadySentinels, "queue_id = :queue AND ", "", "TestSentinelsAlone" + onSQLite},
	{store.RemoveDelayedSentinel, " AND id = 0", "", "TestSentinelsAlone" + onSQLite},
	{store.RemoveDelayedSentinel, " AND divided = :divided", "", "TestSentinelsAlone" + onSQLite},
	{store.RemoveDelayedSentinel, "queue_id = :queue AND ", "", "TestSentinelsAlone" + onSQLite},

	// Ready jobs.
	{store.FetchReady, "priority = 3 AND ", "", "TestFetch" + onSQLite},
	{store.FetchReady, " AND id > :after4", "", "TestFetch" + onSQLite},
	{store.FetchReady, "ORDER BY id", "ORDER BY id DESC", "TestFetch" + onSQLite},
	{store.LookFor, "divided = block AND ", "", ""},
	{store.LookFor, " AND id > after2", "", ""},
	{store.LockJobs, "{locked}", "", "TestLocks" + onPostgres},
	{store.LockJobs, movedQueue, "", ""},
	{store.LockJobs, movedBlock, "", ""},
	{store.LockJobs, movedPrio, always, ""},
	{store.LockJobs, movedID, always, ""},

	// Delayed jobs.
	{store.FetchDelayed, "(run_at, id) > ({time :since}, :after) AND ", "", "TestDue" + onSQLite},
	{store.FetchDelayed, "(run_at, id) > ({time :since}, :after)", "run_at > {time :since}", "TestDue" + onSQLite},
	{store.FetchDelayed, "run_at = {time :since} AND id > :after OR ", "", "TestDue" + onMySQL},
	{store.FetchDelayed, " AND id > :after", "", "TestDue" + onMySQL},
	{store.FetchDelayed, " AND run_at <= {now}", "", "TestDue" + onSQLite},
	{store.FetchDelayed, "ORDER BY run_at, id", "ORDER BY id", "TestDue" + onSQLite},
	{store.NextDelayed, "queue_id = queue AND ", "", "TestDue" + onSQLite},
	{store.NextDelayed, "divided = block AND ", "", "TestDue" + onSQLite},
	{store.NextDelayed, " AND run_at >= {time since}", "", "TestDue" + onSQLite},
	{store.NextDelayed, "divided, run_at, id LIMIT", "divided, id LIMIT", "TestDue" + onSQLite},
	{store.LockDelayed, "{locked}", "", "TestLocks" + onPostgres},
	{store.LockDelayed, movedQueue, "", ""},
	{store.LockDelayed, movedBlock, "", ""},
	{store.LockDelayed, movedID, always, ""},
	{store.HeldKeys, " AND hold_key > :after", " AND hold_key > ''", "TestHeldInPages" + onSQLite},
	{store.HoldingBlocks, " AND hold_key > ''", "", "TestHolding" + onSQLite},
	{store.HoldingBlocks, "queue_id = queue AND ", "", ""},
	{store.HoldingBlocks, "divided = block AND ", "", ""},

	// Running jobs.
	{store.RunningJobs, "LEFT JOIN", "JOIN", ""},
	{store.RunningJobs, " OR r.divided > :divided", "", "TestRunningInPages" + onSQLite},
	{store.RunningJobs, "r.queue_id > :queue OR ", "", "TestRunningInPages" + onSQLite},
	{store.RunningJobs, "n.state = 'live'", always, "TestWhoIsLive" + onSQLite},
	{store.RunningJobs, "n.expire_at > {now}", always, "TestWhoIsLive" + onSQLite},
	{store.AdoptRunning, "(state = 'handed' OR " + dead + ")", always, "TestAdopt" + onSQLite},
	{store.AdoptRunning, "state = 'handed' OR ", "", "TestAdopt" + onSQLite},
	{store.AdoptRunning, dead, "1 = 0", "TestAdopt" + onSQLite},
	{store.AdoptRunning, ofItsNode, "", "TestAdopt" + onSQLite},
	{store.AdoptRunning, ifLive, "", "TestAdopt" + onSQLite},
	{store.AdoptRunning, " AND charged = :had", "", "TestAdopt" + onSQLite},
	{store.AdoptRunning, " AND state = :was", "", "TestAdopt" + onSQLite},
	{store.AdoptRunning, ", state = :state, lock_by", ", lock_by", "TestAdopt" + onSQLite},
	{store.DelayRunning, "j.crashes", "record.died", "TestChargeOfTheDelayed" + onSQLite},
	{store.TakeBack, " AND charged = :had", "", "TestTakeBack" + onSQLite},
	{store.TakeBack, "{int :clears} = 1 AND ", "", "TestTakeBack" + onSQLite},
	{store.TakeBack, " AND state IN ('suspect', 'alone')", "", "TestTakeBack" + onSQLite},
	{store.RunningJobs, "n.state = 'gone'", always, "TestWhoIsLive" + onSQLite},
	{store.SetTrial, " AND state <> 'handed'", "", "TestTrialOfTheHanded" + onSQLite},
	{store.LockRunning, "{locked}", "", "TestLocks" + onPostgres},
	{store.LockRunning, movedQueue, "", ""},
	{store.LockRunning, movedBlock, "", ""},
	{store.LockRunning, movedID, always, ""},

	// Progress.
	{store.SaveProgress, " AND state <> 'handed'", "", "TestProgressOfTheLost" + onSQLite},
	{store.SaveProgress, " AND attempt = :attempt", "", "TestProgressOfTheLost" + onSQLite},
	{store.NoteStuck, " AND state <> 'handed'", "", "TestStuckHandlerOfTheLost" + onSQLite},
	{store.NoteStuck, " AND attempt = :attempt", "", "TestStuckHandlerOfTheLost" + onSQLite},
	{store.StarvedWorkers, "w.busy = 3 AND ", "", "TestStarvedHandlers" + onPostgres},
	{store.DelayRunning, "j.snapshot", "NULL", "TestProgress" + onSQLite},
	{store.Redelay, "run_at = ", "snapshot = NULL, run_at = ", "TestProgress" + onSQLite},
	{store.BuryRunning, "j.snapshot", "NULL", "TestProgress" + onSQLite},
	{store.BuryDelayed, "j.snapshot", "NULL", "TestProgress" + onSQLite},
	{store.ReviveDead, "j.snapshot", "NULL", "TestProgress" + onSQLite},
	{store.CheckOutDelayed, "j.snapshot", "NULL", "TestProgressFaults" + onSQLite},
	{store.DivideAnew, "j.snapshot", "NULL", "TestProgressOfTheMoved" + onSQLite},

	// Stops.
	{store.LockPaused, " AND ({in queue_id :queues}) IS TRUE", "", "TestPauseAfterStops" + onSQLite},
	{store.LockPaused, "stopped_at <= {now + :since} AND ", "", "TestPauseAfterStops" + onSQLite},
	{store.LockPaused, " AND stops >= :stops", "", "TestPauseAfterStops" + onSQLite},
	{store.LockPaused, " AND run_at > {now}", "", "TestPauseAfterStops" + onSQLite},
	{store.Redelay, "stops = picked.halts", "stops = 1", "TestWaysOfHandingBack" + onSQLite},
	{store.DelayReady, "record.halts, CASE", "0, CASE", "TestWaysOfHandingBack" + onSQLite},
	{store.DelayRunning, "record.halts, CASE", "0, CASE", "TestWaysOfHandingBack" + onSQLite},

	// Moves.
	{store.DelayReady, movedPrio, always, ""},
	{store.DelayReady, movedID, always, ""},
	{store.DelayReady, movedQueue, "", ""},
	{store.DelayReady, movedBlock, "", ""},
	{store.DelayRunning, movedID, always, ""},
	{store.DelayRunning, movedQueue, "", ""},
	{store.DelayRunning, movedBlock, "", ""},
	{store.Redelay, delayedRow + "queue_id = picked.queue_id AND ", "", ""},
	{store.Redelay, delayedRow + "divided = picked.divided AND ", "", ""},
	{store.Redelay, " AND " + delayedRow + "id = picked.id", "", ""},
	{store.DivideAnew, movedQueue, "", ""},
	{store.DivideAnew, movedBlock, "", ""},
	{store.DivideAnew, movedID, always, ""},
	{store.PassReady, movedQueue, "", ""},
	{store.PassReady, movedBlock, "", ""},
	{store.PassReady, movedPrio, always, ""},
	{store.PassReady, movedID, always, ""},
	{store.PassKeys, ofQueue, "", "TestMove" + onSQLite},
	{store.PassKeys, "{in job :ids}", always, "TestSameIDMove" + onSQLite},
	{store.StandReady, "ORDER BY id", "ORDER BY id DESC", "TestMoveOfALostBlock" + onSQLite},
	{store.LockLater, " AND run_at > {now + :soon}", "", ""},
	{store.LockLater, " AND (hold_key > '') IS NOT TRUE", "", "TestForward" + onSQLite},
	{store.LockLater, " {skip_locked}", "", "TestLocks" + onPostgres},
	{store.BuryReady, movedPrio, always, ""},
	{store.BuryReady, movedID, always, ""},
	{store.BuryReady, movedQueue, "", ""},
	{store.BuryReady, movedBlock, "", ""},
	{store.BuryReady, "CASE WHEN {int :keep} < 0 THEN NULL ELSE {now + :keep} END", "{now + :keep}", "TestKept" + onSQLite},
	{store.BuryDelayed, movedID, always, ""},
	{store.BuryDelayed, movedQueue, "", ""},
	{store.BuryDelayed, movedBlock, "", ""},
	{store.BuryRunning, movedID, always, ""},
	{store.BuryRunning, movedQueue, "", ""},
	{store.BuryRunning, movedBlock, "", ""},
	{store.CheckOutReady, movedPrio, always, ""},
	{store.CheckOutReady, movedID, always, ""},
	{store.CheckOutReady, movedQueue, "", ""},
	{store.CheckOutReady, movedBlock, "", ""},
	{store.CheckOutDelayed, movedID, always, ""},
	{store.CheckOutDelayed, movedQueue, "", ""},
	{store.CheckOutDelayed, movedBlock, "", ""},

	// What is done, and kept.
	{store.KeepReady, movedPrio, always, ""},
	{store.KeepReady, movedID, always, ""},
	{store.KeepReady, movedQueue, "", ""},
	{store.KeepReady, movedBlock, "", ""},
	{store.KeepReady, "{now + :keep}", "{now}", "TestKeptDone" + onSQLite},
	{store.KeepDelayed, movedID, always, ""},
	{store.KeepDelayed, movedQueue, "", ""},
	{store.KeepDelayed, movedBlock, "", ""},
	{store.KeepRunning, movedID, always, ""},
	{store.KeepRunning, movedQueue, "", ""},
	{store.KeepRunning, movedBlock, "", ""},
	{store.KeepRunning, "j.snapshot", "NULL", "TestKeepDone" + onSQLite},
	{store.LockDone, "{locked}", "", "TestLocks" + onPostgres},
	{store.LockDone, movedQueue, "", ""},
	{store.LockDone, movedBlock, "", ""},
	{store.LockDone, movedID, always, ""},
	{store.OutdatedDone, "purge_at <= {now}", "purge_at IS NOT NULL", "TestKeptDone" + onSQLite},
	{store.OutdatedDone, "{skip_locked}", "", "TestLocks" + onPostgres},

	// Unique keys.
	{store.TakeKeys, "{ignore_duplicate job}", "", "TestUnique" + onSQLite},
	{store.KeyHolders, "u.queue_id = record.queue AND ", "", "TestKeyStatements" + onSQLite},
	{store.KeyHolders, "u.pending = 'no' AND ", "", "TestUniqueFor" + onSQLite},
	{store.KeyHolders, " AND u.free_at <= {now}", "", "TestKeyStatements" + onSQLite},
	{store.KeyHolders, "{share_locked}", "", "TestUniqueOfOldSnapshots" + onMySQL},
	{store.LockedKeyHolders, "{locked}", "", "TestDebounceOfMany" + onPostgres},
	{store.LockReplaced, " AND j.unique_key = record.unique_key", "", "TestDebounceElsewhere" + onSQLite},
	{store.LockReplaced, "j.queue_id = record.queue AND ", "", "TestDebounceStatements" + onSQLite},
	{store.LockReplaced, " AND j.divided = record.block", "", "TestDebounceStatements" + onSQLite},
	{store.LockReplaced, " AND j.id = record.job", "", "TestDebounceStatements" + onSQLite},
	{store.WhereDelayed, "b.queue_id = :queue", always, "TestDebounceStatements" + onSQLite},
	{store.WhereDelayed, "j.queue_id = :queue AND ", "", "TestDebounceStatements" + onSQLite},
	{store.WhereDelayed, "j.divided = b.divided AND ", "", "TestDebounceStatements" + onSQLite},
	{store.UnservedQueues, "q.state = 'paused'", "1 = 0", "TestDebounceBehind/paused" + onSQLite},
	{store.UnservedQueues, "b.state = 'LEASED'", always, "TestDebounceBehind/no_worker" + onSQLite},
	{store.PassOnKeys, "{prefix}job_unique.job = picked.holder", "", "TestKeyStatements" + onSQLite},
	{store.PassOnKeys, "wait_until = {time picked.wait_us}", "wait_until = wait_until", "TestDebounceDue" + onSQLite},
	{store.SeenKeyHolders, "u.queue_id = record.queue AND ", "", "TestKeyStatements" + onSQLite},
	{store.SeenKeyHolders, "u.pending = 'no' AND ", "", "TestUniqueFor" + onSQLite},
	{store.SeenKeyHolders, " AND u.free_at <= {now}", "", "TestKeyStatements" + onSQLite},
	{store.TakeOverKeys, "{prefix}job_unique.job = picked.holder AND ", "", "TestKeyStatements" + onSQLite},
	{store.TakeOverKeys, " AND {prefix}job_unique.pending = 'no'", "", "TestKeyStatements" + onSQLite},
	{store.TakeOverKeys, " AND {prefix}job_unique.free_at <= {now}", "", "TestKeyStatements" + onSQLite},
	{store.FreeKeys, "queue_id = :queue AND ", "", "TestKeyStatements" + onSQLite},
	{store.FreeKeys, "{in job :ids}", always, "TestKeyStatements" + onSQLite},
	{store.FreeKeys, " OR free_at <= {now}", "", "TestKeyStatements" + onSQLite},
	{store.FreeKeys, ofThisName, "", "TestKeyStatements" + onSQLite},
	{store.PartingKeys, ofThisName, "", "TestKeyStatements" + onSQLite},
	{store.KeepKeys, ofThisName, "", "TestKeyStatements" + onSQLite},
	{store.PassKeys, ofThisName, "", "TestSameIDMove" + onSQLite},
	{store.KeysUntil, ofThisName, "", "TestSameIDMove" + onSQLite},
	{store.FreeKeys, " AND (free_at IS NULL OR free_at <= {now})", "", "TestKeyStatements" + onSQLite},
	{store.PartingKeys, "queue_id = :queue AND ", "", "TestKeyStatements" + onSQLite},
	{store.PartingKeys, "{in job :ids}", always, "TestKeyStatements" + onSQLite},
	{store.KeepKeys, "queue_id = :queue AND ", "", "TestKeyStatements" + onSQLite},
	{store.KeepKeys, "{in job :ids}", always, "TestKeyStatements" + onSQLite},
	{store.OldKeys, "pending = 'no' AND ", "", "TestKeyStatements" + onSQLite},
	{store.OldKeys, "free_at <= {now}", "free_at IS NOT NULL", "TestKeyStatements" + onSQLite},

	// Groups.
	{store.EnterGroup, "{share_locked}", "", "TestGroupLocks" + onPostgres},
	{store.LockGroup, " {skip_locked}", "", "TestGroupLocks" + onPostgres},
	{store.FinishMembers, "{prefix}job_member.group_id = picked.group_id", always, "TestGroupStatements" + onSQLite},
	{store.FinishMembers, "{prefix}job_member.job = picked.job", always, "TestGroupStatements" + onSQLite},
	{store.SealGroup, "id = :group AND ", "", "TestGroupStatements" + onSQLite},
	{store.SealGroup, " AND state = 'open'", "", "TestGroupStatements" + onSQLite},
	{store.LockGroup, " AND state = 'sealed'", "", "TestGroupStatements" + onSQLite},
	{store.RipeGroups, "g.state = 'sealed' AND ", "", "TestGroupStatements" + onSQLite},
	{store.RipeGroups, "m.group_id = g.id AND ", "", "TestGroupStatements" + onSQLite},
	{store.RipeGroups, " AND m.state = 'pending'", "", "TestGroupStatements" + onSQLite},
	{store.RipeAny, "g.state = 'sealed' AND ", "", "TestGroupStatements" + onSQLite},
	{store.EndGroup, "id = :group AND state", "state", "TestGroupStatements" + onSQLite},
	{store.EndGroup, " AND state = 'sealed'", "", "TestGroupStatements" + onSQLite},
	{store.EndGroup, "m.group_id = :group AND ", "", "TestGroupStatements" + onSQLite},
	{store.EndGroup, " AND m.state = 'pending'", "", "TestGroupStatements" + onSQLite},
	{store.DropGroup, " WHERE id = :group", "", "TestGroupStatements" + onSQLite},
	{store.AccuseGroup, " WHERE id = :group", "", "TestGroupStatements" + onSQLite},
	{store.PurgeMembers, "group_id = :group AND ", "", "TestGroupStatements" + onSQLite},
	{store.PurgeMembers, "{in job :ids}", always, "TestGroupStatements" + onSQLite},
	{store.PurgeGroup, "id = :group AND ", "", "TestGroupStatements" + onSQLite},
	{store.PurgeGroup, " AND purge_at <= {now}", "", "TestGroupStatements" + onSQLite},
	{store.OldGroups, "purge_at <= {now}", "purge_at IS NOT NULL", "TestOldGroups" + onSQLite},

	// Topics.
	{store.InsertSubscription, "{ignore_duplicate queue}", "", "TestPublish" + onSQLite},
	{store.DeleteSubscription, "topic = :topic AND ", "", "TestTopicStatements" + onSQLite},
	{store.DeleteSubscription, " AND queue = :subscriber", "", "TestTopicStatements" + onSQLite},
	{store.ListSubscribed, "topic = :topic AND ", "", "TestPublish" + onSQLite},
	{store.ListSubscribed, " AND q.state = 'deleted'", "", "TestPublish" + onSQLite},
	{store.ListSubscribed, "q.name = t.queue AND ", "", "TestPublish" + onSQLite},
	{store.ListSubscriptions, "topic = :topic AND ", "", "TestPublish" + onSQLite},
	{store.ListSubscriptions, " AND queue > :subscriber", "", "TestPublish" + onSQLite},

	// Counts.
	{store.SumCounts, "q.queue_id = c.queue_id", always, "TestCounts" + onSQLite},
	{store.SumCounts, "q.name > :name OR ", "", "TestManyCounts" + onSQLite},
	{store.MinuteCounts, "q.queue_id = c.queue_id", always, "TestCounts" + onSQLite},
	{store.MinuteCounts, "LEFT JOIN", "JOIN", "TestManyCounts" + onSQLite},
	{store.PurgeCounts, "minute < {now + :since}", always, "TestCounts" + onSQLite},

	// What people and programs ask.
	{store.StatReady, ":divided", "3", ""},
	{store.StatReady, ":priority", "2", ""},
	{store.StatReady, "ORDER BY id", "ORDER BY id DESC", "TestStats" + onSQLite},
	{store.StatReady, "LIMIT :limit", "LIMIT 1000", "TestStats" + onSQLite},
	{store.StatDelayed, ":divided", "3", ""},
	{store.StatRunning, ":divided", "3", ""},
	{store.StatDead, "LIMIT :limit", "LIMIT 1000", "TestStats" + onSQLite},
	{store.LocateJob, "j.queue_id = b.queue_id AND j.divided", "j.divided", "TestFind" + onSQLite},
	{store.LocateJob, "j.queue_id = b.queue_id AND j.id", "j.id", "TestFind" + onSQLite},
	{store.LocateJob, " AND j.divided = b.divided", "", "TestFind" + onSQLite},
	{store.LocateJob, " AND j.id = :id", "", "TestFind" + onSQLite},
	{store.LocateJob, " AND j.priority = 4", "", "TestFind" + onSQLite},
	{store.LocateJob, "b.queue_id >= :first AND ", "", "TestFind" + onSQLite},
	{store.LocateJob, " AND b.queue_id <= :last", "", "TestFind" + onSQLite},
	{store.HastenDelayed, delayedRow + "run_at > {now}", "", "TestOnce" + onSQLite},
	{store.HastenDelayed, delayedRow + "queue_id = picked.queue_id AND ", "", ""},
	{store.HastenDelayed, delayedRow + "divided = picked.divided AND ", "", ""},
	{store.HastenDelayed, " AND " + delayedRow + "id = picked.id", "", ""},
	{store.ReviveDead, movedQueue, "", ""},
	{store.ReviveDead, movedID, always, ""},
	{store.PendingKinds, " AND j.kind IN (:kinds)", "", "TestPending" + onSQLite},
	{store.PendingKinds, " AND u.id < j.id", "", "TestPendingKinds" + onSQLite},
	{store.PendingKinds, " AND u.job_key = j.job_key", "", "TestPendingKinds" + onSQLite},
	{store.PendingFIFOKinds, " IN (:kinds)", " IS NOT NULL", "TestPendingKinds" + onSQLite},
	{store.Announced, "n.state = 'live' AND ", "", "TestUnknown" + onSQLite},
	{store.OtherKinds, " AND run_at <= {now}", "", "TestUnknown" + onSQLite},
	{store.PendingBlock, "b.queue_id = :queue", always, "TestPending" + onSQLite},
	{store.PendingBlock, "j.queue_id = b.queue_id", always, "TestPending" + onSQLite},
	{store.PendingBlock, "j.divided = b.divided", always, "TestPending" + onSQLite},
	{store.PendingBlock, " AND j.run_at <= {now}", "", "TestPending" + onSQLite},
	{store.PendingBlock, " AND h.run_at > {now}", "", "TestPending" + onSQLite},
	{store.PendingBlock, "h.queue_id = j.queue_id", always, "TestPending" + onSQLite},
	{store.PendingBlock, "h.divided = j.divided", always, "TestPending" + onSQLite},
	{store.PendingBlock, "h.hold_key = j.job_key", always, "TestPending" + onSQLite},
	{store.PendingBlock, "r.queue_id = j.queue_id", always, "TestPending" + onSQLite},
	{store.PendingBlock, "r.divided = j.divided", always, "TestPending" + onSQLite},
	{store.PendingBlock, "r.job_key = j.job_key", always, "TestPending" + onSQLite},
	{store.LockOut, "{locked}", "", "TestLocks" + onPostgres},
	{store.LockOut, movedQueue, "", ""},
	{store.LockOut, movedBlock, "", ""},
	{store.LockOut, movedID, always, ""},
	{store.LockDead, "{locked}", "", "TestLocks" + onPostgres},
	{store.LockDead, movedQueue, "", ""},
	{store.LockDead, movedBlock, "", ""},
	{store.LockDead, movedID, always, ""},
	{store.OutdatedDead, "purge_at <= {now}", "purge_at IS NOT NULL", "TestKept" + onSQLite},
	{store.OutdatedDead, "{skip_locked}", "", "TestLocks" + onPostgres},
	{store.SurplusOf, "ORDER BY id DESC", "ORDER BY id", "TestKeepDeadMax" + onSQLite},
	{store.SurplusDead, " AND id <= :most", "", "TestKeepDeadMax" + onSQLite},
	{store.SurplusDead, "{skip_locked}", "", "TestLocks" + onPostgres},
}...)

// ofQueues is which table's queue is among some, where there is another.
var ofQueues = map[*sqlrun.Stmt]string{store.ListWorkers: "w.", store.ListBlocks: "b.", store.RunningJobs: "r."}

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
			case "names":
				old, changed = " IN (:names)", " IS NOT NULL"
			case "queues":
				old, changed = "{in "+ofQueues[r.stmt]+"queue_id :queues}", always
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
