package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Processes, and the queues on which they work.
var (
	// JoinNode inserts a row with a new name. A worker that was drained stays drained under it.
	JoinNode = sqlrun.SQL("queue.join", `
		INSERT INTO {prefix}node (name, state, expire_at, started_at, under, version, drained_at, drained_by)
		VALUES (:node, 'live', {now + :lease}, {now}, :under, :version, CASE WHEN {int :drained} = 1 THEN {now} END, :by)`)

	// Heartbeat renews the leases of some workers. A worker whose lease has expired does not
	// become live again, even if nobody has noticed yet. If fewer rows change than there are
	// names, the caller asks for each, and then NodeLives whether the row is only locked.
	Heartbeat = sqlrun.UpdateFree("queue.heartbeat", "{prefix}node", byName, `expire_at = {now + :lease}, heartbeats = heartbeats + 1`,
		`name IN (:nodes) AND state = 'live' AND expire_at > {now}`)

	// ExpelNode declares a process lost that has missed its heartbeats. One whose row is locked stays
	// live meanwhile: a session that ends its jobs locks it, to keep them until its commit.
	ExpelNode = sqlrun.UpdateFree("queue.expel", "{prefix}node", byName, `state = 'lost'`, `name = :node AND state = 'live' AND expire_at <= {now}`)

	// NodeState tells, after ExpelNode, whether a process is no longer live: that is for good.
	NodeState = sqlrun.SQL("queue.node-state", `SELECT state FROM {prefix}node WHERE name = :node`)

	// ExpelIdleNodes does so with processes that held nothing that others waited for.
	ExpelIdleNodes = sqlrun.UpdateFree("queue.expel-idle", "{prefix}node", byName, `state = 'lost'`,
		`state = 'live' AND expire_at < {now + :since}`)

	// SucceedNodes declares all processes lost that worked under a lock. Their leases are then
	// free: their rows tell them so, as if they had missed their heartbeats.
	SucceedNodes = sqlrun.SQL("queue.succeed", `UPDATE {prefix}node SET state = 'lost' WHERE under = :under AND state = 'live'`)

	// ResignNodes lets processes that are ending keep their leases until they have ended,
	// whoever gets the lock under which they worked.
	ResignNodes = sqlrun.SQL("queue.resign", `UPDATE {prefix}node SET under = '' WHERE under = :under AND state = 'live'`)

	// LeaveNode ends a process's name. The process says so itself, so it did not die of a job, even if
	// others have declared it lost meanwhile.
	LeaveNode = sqlrun.SQL("queue.leave", `
		UPDATE {prefix}node SET state = 'gone', expire_at = {now} WHERE name = :node AND state <> 'gone'`)

	// ForgetNodes and ForgetWorkers remove the rows of processes that ended long ago. Their
	// leases are free whether or not these rows exist.
	ForgetNodes = sqlrun.DeleteFree("queue.forget-nodes", "{prefix}node", byName, `state <> 'live' AND expire_at < {now + :since}`)

	ForgetWorkers = sqlrun.DeleteFree("queue.forget-workers", "{prefix}queue_worker", []string{"queue_id", "node"},
		`NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = node)`)

	RegisterWorker = sqlrun.SQL("queue.register", `
		INSERT INTO {prefix}queue_worker (queue_id, node, busy, kinds) VALUES {values rows: (:queue, :node, :busy, :does)} {ignore_duplicate node}`)

	SetBusy = sqlrun.UpdateFree("queue.set-busy", "{prefix}queue_worker", []string{"queue_id", "node"}, `busy = :busy, kinds = :does`,
		`{in queue_id :queues} AND node = :node`)

	// ListWorkers lists the workers of some queues: since when others may take their leases,
	// whether they are drained, and which kinds they handle.
	ListWorkers = sqlrun.SQL("queue.workers", `
		SELECT w.queue_id, w.node, w.busy, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END, CASE WHEN n.drained_at IS NULL THEN 0 ELSE 1 END, n.drained_by, w.kinds
		FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
		WHERE {in w.queue_id :queues} AND n.state = 'live' ORDER BY w.queue_id, w.node`)

	// Pulse shows in one row whether the processes are the same as before, with the database's
	// clock: the number of live ones, of late ones, of drained ones, and when the newest
	// joined. Nothing is decided by it: whoever sees a difference reads the workers.
	Pulse = sqlrun.SQL("queue.pulse", `
		SELECT {us {now}}, COUNT(*), COALESCE(SUM(CASE WHEN expire_at > {now} THEN 0 ELSE 1 END), 0),
			COALESCE(SUM(CASE WHEN drained_at IS NULL THEN 0 ELSE 1 END), 0), COALESCE({us MAX(started_at)}, 0)
		FROM {prefix}node WHERE state = 'live'`)
)

// byName is the key of processes.
var byName = []string{"name"}
