package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Processes, and the queues that they work on.
var (
	// JoinNode makes a row of a name that is new. A worker that was drained stays so under it.
	JoinNode = sqlrun.SQL("queue.join", `
		INSERT INTO {prefix}node (name, state, expire_at, under, version, drained_at, drained_by)
		VALUES (:node, 'live', {now + :lease}, :under, :version, CASE WHEN {int :drained} = 1 THEN {now} END, :by)`)

	// Heartbeat holds on to all that some workers have. One whose time is over is not live again, even
	// if nobody has noticed yet. If it changes fewer rows than it has names, the caller asks for each.
	Heartbeat = sqlrun.SQL("queue.heartbeat", `
		UPDATE {prefix}node SET expire_at = {now + :lease}, heartbeats = heartbeats + 1
		WHERE name IN (:nodes) AND state = 'live' AND expire_at > {now}`)

	// ExpelNode declares a process lost that was not heard of in time.
	ExpelNode = sqlrun.SQL("queue.expel", `
		UPDATE {prefix}node SET state = 'lost' WHERE name = :node AND state = 'live' AND expire_at <= {now}`)

	// ExpelIdleNodes does so with those that had nothing that others waited for.
	ExpelIdleNodes = sqlrun.SQL("queue.expel-idle", `
		UPDATE {prefix}node SET state = 'lost' WHERE state = 'live' AND expire_at < {now + :since}`)

	// SucceedNodes declares all processes lost that worked under a lock. What they had is then
	// free: each was told so by its row, as if it had not been heard of in time.
	SucceedNodes = sqlrun.SQL("queue.succeed", `UPDATE {prefix}node SET state = 'lost' WHERE under = :under AND state = 'live'`)

	// ResignNodes has processes that end keep what they have until they have ended, whoever gets the
	// lock under which they worked.
	ResignNodes = sqlrun.SQL("queue.resign", `UPDATE {prefix}node SET under = '' WHERE under = :under AND state = 'live'`)

	LeaveNode = sqlrun.SQL("queue.leave", `
		UPDATE {prefix}node SET state = 'gone', expire_at = {now} WHERE name = :node AND state = 'live'`)

	// ForgetNodes and ForgetWorkers remove what is left of processes that ended
	// long ago. What they had is free whether their rows are there or not.
	ForgetNodes = sqlrun.SQL("queue.forget-nodes", `
		DELETE FROM {prefix}node WHERE state <> 'live' AND expire_at < {now + :since}`)

	ForgetWorkers = sqlrun.SQL("queue.forget-workers", `
		DELETE FROM {prefix}queue_worker WHERE NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = node)`)

	RegisterWorker = sqlrun.SQL("queue.register", `
		INSERT INTO {prefix}queue_worker (queue_id, node, busy, kinds) VALUES {values rows: (:queue, :node, :busy, :does)} {ignore_duplicate node}`)

	SetBusy = sqlrun.SQL("queue.set-busy", `
		UPDATE {prefix}queue_worker SET busy = :busy, kinds = :does WHERE {in queue_id :queues} AND node = :node`)

	// ListWorkers lists who works on some queues, since when others may take what is
	// theirs, who takes nothing any more, and which kinds each does.
	ListWorkers = sqlrun.SQL("queue.workers", `
		SELECT w.queue_id, w.node, w.busy, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END, CASE WHEN n.drained_at IS NULL THEN 0 ELSE 1 END, n.drained_by, w.kinds
		FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
		WHERE {in w.queue_id :queues} AND n.state = 'live' ORDER BY w.queue_id, w.node`)

	// Pulse tells whether the processes are the same as before, in one row, with the database's clock:
	// how many are live, how many of them are not heard of in time, how many are drained, and when
	// the newest has joined. It decides nothing: whoever sees a difference reads who works where.
	Pulse = sqlrun.SQL("queue.pulse", `
		SELECT {us {now}}, COUNT(*), COALESCE(SUM(CASE WHEN expire_at > {now} THEN 0 ELSE 1 END), 0),
			COALESCE(SUM(CASE WHEN drained_at IS NULL THEN 0 ELSE 1 END), 0), COALESCE({us MAX(started_at)}, 0)
		FROM {prefix}node WHERE state = 'live'`)
)
