package queue

import (
	"database/sql"
	"strings"

	"github.com/dbcron/dbcron/dialect"
)

// All SQL of this package.
//
// What makes any number of workers safe at once:
//
// A process is a row of node. What it holds is its own for as long as that row
// says live. A row stops saying so once, by a guarded UPDATE, and never says so
// again: whoever is late comes back under another name. So a block may be taken
// from one that is not live without a look at anything else.
//
// A block is taken by an UPDATE that names the fence it saw, so one of several
// gets it. Whoever has it reads its jobs without locks, since nobody else does.
//
// A job is finished by whoever deletes its row: there is one such. Moving a job to
// another table is a transaction that locks its row, and ends with a locking read
// of the block's fence: a worker that has lost the block moves nothing.
var (
	// Queues.

	getQueue = dialect.SQL("queue.get", withGenerations("SELECT * FROM {prefix}queue WHERE name = :name"))

	listQueues = dialect.SQL("queue.list", withGenerations("SELECT * FROM {prefix}queue WHERE name > :after ORDER BY name LIMIT :limit"))

	// getQueueNow sees a queue that others have made since the transaction's snapshot.
	getQueueNow = dialect.PerDialect("queue.get-now", func(d *dialect.Dialect) string {
		return generationsOf("SELECT * FROM {prefix}queue WHERE name = :name "+d.Current,
			`(SELECT o.* FROM {prefix}queue_block AS o JOIN {prefix}queue AS p ON p.queue_id = o.queue_id WHERE p.name = :name `+d.Current+`)`)
	})

	// lockQueue serializes those who make a queue's blocks or change their number.
	lockQueue = dialect.SQL("queue.lock", `
		SELECT queue_id, (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id) FROM {prefix}queue AS q WHERE q.name = :name {locked}`)

	createQueue = dialect.SQL("queue.create", `
		INSERT INTO {prefix}queue (name) VALUES (:name) {ignore_duplicate name}`)

	// createBlocks runs with the queue locked. Those that a transaction's snapshot does not
	// show are there all the same.
	createBlocks = dialect.SQL("queue.create-blocks", `
		INSERT INTO {prefix}queue_block (queue_id, divided, generation, fifo) VALUES {values rows: (:queue, :divided, :generation, :fifo)} {ignore_duplicate divided}`)

	setOrdered = dialect.SQL("queue.set-ordered", `
		UPDATE {prefix}queue SET ordered = 'yes', update_time = {now} WHERE queue_id = :queue AND ordered <> 'yes'`)

	setQueue = dialect.SQL("queue.set", `
		UPDATE {prefix}queue SET state = :state, reason = :reason, key_retry = :key_retry, max_attempts = :max_attempts, max_crashes = :max_crashes,
			retry_delay = :retry_delay, retry_max_delay = :retry_max_delay, timeout = :timeout, max_payload = :max_payload,
			keep_dead = :keep_dead, keep_dead_max = :keep_dead_max, keep_done = :keep_done, poll_min = :poll_min, poll_max = :poll_max, update_time = {now}
		WHERE queue_id = :queue`)

	// usesOf tells what keeps a queue from being deleted. Routes to it are set with the
	// queue locked, as it is here; jobs may come until all who enqueue know.
	usesOf = dialect.SQL("queue.uses", `
		SELECT CASE WHEN EXISTS (SELECT 1 FROM {prefix}job WHERE queue_id = :queue) THEN 'ready jobs'
			WHEN EXISTS (SELECT 1 FROM {prefix}job_delayed WHERE queue_id = :queue) THEN 'delayed jobs'
			WHEN EXISTS (SELECT 1 FROM {prefix}job_running WHERE queue_id = :queue) THEN 'running jobs'
			WHEN EXISTS (SELECT 1 FROM {prefix}job_dead WHERE queue_id = :queue) THEN 'dead jobs'
			WHEN EXISTS (SELECT 1 FROM {prefix}route WHERE queue = :name) THEN 'a route that leads to it' ELSE '' END`)

	// markDeleted runs with the queue locked.
	markDeleted = dialect.SQL("queue.mark-deleted", `
		UPDATE {prefix}queue SET state = 'deleted', reason = '', update_time = {now} WHERE queue_id = :queue`)

	// Nodes.

	// join makes a row of a name that is new. A worker that was drained stays so under it.
	join = dialect.SQL("queue.join", `
		INSERT INTO {prefix}node (name, state, expire_at, under, version, drained_at, drained_by)
		VALUES (:node, 'live', {now + :lease}, :under, :version, CASE WHEN {int :drained} = 1 THEN {now} END, :by)`)

	// heartbeat holds on to all that a process has. A process whose time is over is
	// not live again, even if nobody has noticed yet.
	heartbeat = dialect.SQL("queue.heartbeat", `
		UPDATE {prefix}node SET expire_at = {now + :lease}, heartbeats = heartbeats + 1
		WHERE name = :node AND state = 'live' AND expire_at > {now}`)

	// expel declares a process lost that was not heard of in time.
	expel = dialect.SQL("queue.expel", `
		UPDATE {prefix}node SET state = 'lost' WHERE name = :node AND state = 'live' AND expire_at <= {now}`)

	// expelIdle does so with those that had nothing that others waited for.
	expelIdle = dialect.SQL("queue.expel-idle", `
		UPDATE {prefix}node SET state = 'lost' WHERE state = 'live' AND expire_at < {now + :since}`)

	// succeed declares all processes lost that worked under a lock. What they had is then
	// free: each was told so by its row, as if it had not been heard of in time.
	succeed = dialect.SQL("queue.succeed", `UPDATE {prefix}node SET state = 'lost' WHERE under = :under AND state = 'live'`)

	// resign has processes that end keep what they have until they have ended, whoever gets the
	// lock under which they worked.
	resign = dialect.SQL("queue.resign", `UPDATE {prefix}node SET under = '' WHERE under = :under AND state = 'live'`)

	leave = dialect.SQL("queue.leave", `
		UPDATE {prefix}node SET state = 'gone', expire_at = {now} WHERE name = :node AND state = 'live'`)

	// forgetNodes and forgetWorkers remove what is left of processes that ended
	// long ago. What they had is free whether their rows are there or not.
	forgetNodes = dialect.SQL("queue.forget-nodes", `
		DELETE FROM {prefix}node WHERE state <> 'live' AND expire_at < {now + :since}`)

	forgetWorkers = dialect.SQL("queue.forget-workers", `
		DELETE FROM {prefix}queue_worker WHERE NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = node)`)

	register = dialect.SQL("queue.register", `
		INSERT INTO {prefix}queue_worker (queue_id, node, busy) VALUES (:queue, :node, :busy) {ignore_duplicate node}`)

	setBusy = dialect.SQL("queue.set-busy", `
		UPDATE {prefix}queue_worker SET busy = :busy WHERE queue_id = :queue AND node = :node`)

	// workers lists who works on a queue, since when others may take what is
	// theirs, and who takes nothing any more.
	workers = dialect.SQL("queue.workers", `
		SELECT w.node, w.busy, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END, CASE WHEN n.drained_at IS NULL THEN 0 ELSE 1 END, n.drained_by
		FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
		WHERE w.queue_id = :queue AND n.state = 'live' ORDER BY w.node`)

	// Blocks.

	blocks = dialect.SQL("queue.blocks", `
		SELECT b.divided, b.generation, b.state, b.lock_by, b.fence, b.batch, b.suspects, COALESCE({us b.lock_at}, 0),
			CASE WHEN n.state = 'live' THEN 1 ELSE 0 END, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END, CASE WHEN n.state = 'gone' THEN 1 ELSE 0 END,
			CASE WHEN b.fifo = 'yes' THEN 1 ELSE 0 END
		FROM {prefix}queue_block AS b LEFT JOIN {prefix}node AS n ON n.name = b.lock_by
		WHERE b.queue_id = :queue ORDER BY b.divided`)

	// take leases a block that is free, or whose holder is not live. The fence is
	// what the taker saw: one of several takers finds it. One whose holder has left as
	// it should is not under suspicion.
	take = dialect.SQL("queue.take", `
		UPDATE {prefix}queue_block
		SET suspects = CASE WHEN state = 'FREE' OR {int :left} = 1 THEN 0 ELSE suspects + 1 END, state = 'LEASED', lock_by = :node, lock_at = {now}, batch = :batch, fence = fence + 1
		WHERE queue_id = :queue AND divided = :divided AND fence = :fence
			AND (state = 'FREE' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = lock_by AND n.state = 'live'))`)

	handOver = dialect.SQL("queue.hand-over", `
		UPDATE {prefix}queue_block SET state = 'FREE' WHERE queue_id = :queue AND divided = :divided AND fence = :fence AND lock_by = :node`)

	// trust ends the suspicion that a job of the block has ended its worker.
	trust = dialect.SQL("queue.trust", `
		UPDATE {prefix}queue_block SET suspects = 0 WHERE queue_id = :queue AND divided = :divided AND fence = :fence AND lock_by = :node`)

	// stillMine is read last in a transaction that moves jobs of a block: taking the
	// block waits for it, or was before it.
	stillMine = dialect.SQL("queue.still-mine", `
		SELECT fence FROM {prefix}queue_block WHERE queue_id = :queue AND divided = :divided AND fence = :fence AND lock_by = :node {share_locked}`)

	// drained tells whether a generation of blocks has no job left, and how long the
	// one after it has been there.
	drained = dialect.SQL("queue.drained", `
		SELECT CASE WHEN `+anyIn("job")+` OR `+anyIn("job_delayed")+` OR `+anyIn("job_running")+` THEN 0 ELSE 1 END,
			(SELECT {us {now}} - {us MIN(insert_time)} FROM {prefix}queue_block WHERE queue_id = :queue AND generation > :generation)`)

	// retire removes the blocks of a generation that is drained. A job that comes late
	// all the same is found by strays.
	retire = dialect.SQL("queue.retire", `
		DELETE FROM {prefix}queue_block WHERE queue_id = :queue AND generation = :generation`)

	// strays finds the first block with jobs in each of some gaps between the blocks
	// that there are.
	strays = dialect.SQL("queue.strays", `SELECT `+firstBetween("job")+`, `+firstBetween("job_delayed")+
		` FROM {records gaps: above int, below int}`)

	// Ready jobs.

	insertJobs = dialect.PerDialect("queue.insert", func(d *dialect.Dialect) string { return insertInto(d, "job", commonFields+rareFields) })

	// insertPlain inserts jobs that have nothing rare about them, as most have.
	insertPlain = dialect.PerDialect("queue.insert-plain", func(d *dialect.Dialect) string { return insertInto(d, "job", commonFields) })

	// insertJobsTold and insertPlainTold are these in a caller's transaction.
	insertJobsTold = dialect.PerDialect("queue.insert-told",
		func(d *dialect.Dialect) string { return insertTelling(d, commonFields+rareFields) })
	insertPlainTold = dialect.PerDialect("queue.insert-plain-told", func(d *dialect.Dialect) string { return insertTelling(d, commonFields) })

	// fetch reads a block's jobs, the most urgent ones first, each priority from its
	// cursor on. It locks nothing: the block is leased.
	fetch = dialect.PerDialect("queue.fetch", fetchPriorities)

	// fetchAgain reads jobs of a block that were put back, up to a limit of each priority. It
	// locks nothing, as fetch.
	fetchAgain = dialect.SQL("queue.fetch-again", selectPriorities())

	// ack deletes jobs that are done, and its like do so in the other tables. BETWEEN
	// makes it a range of the key also in a plan that was made when the table was
	// empty; the list says which: jobs that were committed late may be in between.
	ack        = dialect.SQL("queue.ack", `DELETE FROM {prefix}job WHERE priority = :priority AND `+these+` {only id :n}`)
	ackDelayed = dialect.SQL("queue.ack-delayed", `DELETE FROM {prefix}job_delayed WHERE `+these+` {only id :n}`)
	ackRunning = dialect.SQL("queue.ack-running", `DELETE FROM {prefix}job_running WHERE `+these+` AND lock_by = :node {only id :n}`)

	// present and its like tell which of some jobs are there.
	present        = dialect.SQL("queue.present", `SELECT id FROM {prefix}job WHERE priority = :priority AND `+these)
	presentDelayed = dialect.SQL("queue.present-delayed", `SELECT id FROM {prefix}job_delayed WHERE `+these)
	presentDead    = dialect.SQL("queue.present-dead", `SELECT id FROM {prefix}job_dead WHERE `+these)

	// load and its like read what a worker has left in the table of some jobs that it has
	// read. Nobody else changes a payload, and a row that is gone was cancelled.
	load = dialect.SQL("queue.load",
		`SELECT id, payload, payload_bin, NULL, NULL, NULL FROM {prefix}job WHERE priority = :priority AND `+these)
	loadDelayed = dialect.SQL("queue.load-delayed", `SELECT id, payload, payload_bin, `+progress+` FROM {prefix}job_delayed WHERE `+these)
	loadRunning = dialect.SQL("queue.load-running", `SELECT id, payload, payload_bin, `+progress+
		` FROM {prefix}job_running WHERE `+these+` AND lock_by = :node`)

	// lockJobs and its like lock those of some jobs that are there, and nothing beside
	// them: a producer may have locked that.
	lockJobs    = dialect.SQL("queue.lock-jobs", lockIn("job", " AND j.priority = record.urgency"))
	lockDelayed = dialect.SQL("queue.lock-delayed", lockIn("job_delayed", ""))
	lockRunning = dialect.SQL("queue.lock-running", lockIn("job_running", " AND j.lock_by = :node"))
	lockOut     = dialect.SQL("queue.lock-checked-out", lockIn("job_running", ""))
	lockDead    = dialect.SQL("queue.lock-dead", lockIn("job_dead", ""))

	// Delayed jobs.

	insertDelayed = dialect.PerDialect("queue.insert-delayed", func(d *dialect.Dialect) string {
		return insertInto(d, "job_delayed", commonFields+rareFields+", run_at={time run_us} int")
	})

	// fetchDelayed reads jobs whose time has come. The lower bound spares it the
	// entries of those that were done long ago.
	fetchDelayed = dialect.SQL("queue.fetch-delayed", `
		SELECT id, priority, `+body+`, attempt, crashes, {us run_at}, hold_key, `+progress+`
		FROM {prefix}job_delayed
		WHERE queue_id = :queue AND divided = :divided AND run_at >= {time :since} AND run_at <= {now}
		ORDER BY run_at, id LIMIT :limit`)

	// nextDelayed tells for some blocks when the next job is due. For its order see lookFor.
	nextDelayed = dialect.SQL("queue.next-delayed", `
		SELECT block, {us {now}},
			(SELECT {us run_at} FROM {prefix}job_delayed WHERE queue_id = {int :queue} AND divided = block AND run_at >= {time since} ORDER BY queue_id, divided, run_at, id LIMIT 1)
		FROM {records rows: block int, since int}`)

	// held lists the jobs of a block that wait for their retry, and their keys with
	// them.
	held = dialect.SQL("queue.held", `
		SELECT id, hold_key FROM {prefix}job_delayed WHERE queue_id = :queue AND divided = :divided AND hold_key > ''`)

	// Running jobs.

	// runningJobs lists the checked out jobs of a queue, with whether their worker
	// is live.
	runningJobs = dialect.SQL("queue.running", `
		SELECT r.divided, r.id, r.job_key, r.state, r.crashes, r.lock_by,
			CASE WHEN n.state = 'live' THEN 1 ELSE 0 END, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END
		FROM {prefix}job_running AS r LEFT JOIN {prefix}node AS n ON n.name = r.lock_by
		WHERE r.queue_id = :queue ORDER BY r.divided, r.id`)

	// adopt takes over a checked out job whose worker has ended. That the state is what the
	// taker saw is how it knows what the worker died of: a worker that is late may have written
	// that it trusts the job.
	adopt = dialect.SQL("queue.adopt", `
		UPDATE {prefix}job_running
		SET crashes = crashes + CASE WHEN state = 'handed' THEN 0 ELSE 1 END, state = :state, lock_by = :node, fence = :fence, started_at = {now}
		WHERE queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :from AND state = :was
			AND (state = 'handed' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = lock_by AND n.state = 'live'))`)

	getRunning = dialect.SQL("queue.get-running", `
		SELECT id, priority, `+body+`, attempt, crashes, `+progress+`
		FROM {prefix}job_running WHERE queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :node`)

	// handRunning gives a job that a worker cannot finish to whoever has its block.
	handRunning = dialect.SQL("queue.hand-running", `
		UPDATE {prefix}job_running SET state = 'handed' WHERE `+these+` AND lock_by = :node AND state <> 'handed'`)

	// setTrial says of a worker's own job what its death would mean: see suspect.go. Once
	// somebody else has adopted the row, or it was handed over, it changes nothing.
	setTrial = dialect.SQL("queue.set-trial", `
		UPDATE {prefix}job_running SET state = :state
		WHERE queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :node AND state <> 'handed'`)

	// Moves. The rows of :rows are locked, in the table that they come from.

	delayReady   = dialect.SQL("queue.delay-ready", moveTo("job_delayed", "job", true))
	delayRunning = dialect.SQL("queue.delay-running", moveTo("job_delayed", "job_running", false))

	// redelay puts delayed jobs off once more.
	redelay = dialect.PerDialect("queue.redelay", func(d *dialect.Dialect) string {
		return d.UpdateFrom("{prefix}job_delayed", []string{"queue_id", "divided", "id"},
			`run_at = {now + picked.later}, attempt = picked.tries, crashes = picked.died, error = picked.why, hold_key = picked.holds`, "",
			`SELECT {int :queue} AS queue_id, {int :divided} AS divided, job AS id, later, tries, died, why, holds
			FROM {records rows: job int, tries int, died int, why text, later int, holds text}`)
	})

	// lockLater and divideAnew move jobs that are not due soon to other blocks, which may
	// be another queue's. It does not say IS NULL, so that MySQL does not look by hold_key's
	// index for the many jobs without one, lock them all and sort them.
	lockLater = dialect.SQL("queue.lock-later", `
		SELECT id, job_key, kind FROM {prefix}job_delayed
		WHERE queue_id = :queue AND divided = :divided AND run_at > {now + :soon} AND (hold_key > '') IS NOT TRUE
		ORDER BY run_at, id LIMIT :limit {locked}`)

	divideAnew = dialect.SQL("queue.divide-anew", `
		INSERT INTO {prefix}job_delayed (queue_id, divided, id, priority, `+body+`, `+progress+`, attempt, crashes, error, run_at, hold_key)
		SELECT {int :to}, record.target, j.id, j.priority, `+bodyOfJ+`, `+progressOfJ+`, j.attempt, j.crashes, j.error, j.run_at, j.hold_key
		FROM {records rows: queue int, block int, job int, target int}
		{join_by_key {prefix}job_delayed AS j} ON j.queue_id = record.queue AND j.divided = record.block AND j.id = record.job`)

	buryReady   = dialect.SQL("queue.bury-ready", moveTo("job_dead", "job", true))
	buryDelayed = dialect.SQL("queue.bury-delayed", moveTo("job_dead", "job_delayed", false))
	buryRunning = dialect.SQL("queue.bury-running", moveTo("job_dead", "job_running", false))

	checkOutReady   = dialect.SQL("queue.check-out-ready", moveTo("job_running", "job", true))
	checkOutDelayed = dialect.SQL("queue.check-out-delayed", moveTo("job_running", "job_delayed", false))
)

// What people and programs ask.
var (
	// Lists have no payloads: see content.
	readyByID = dialect.SQL("queue.list-ready", selectReady(`id, priority, `+bareBody))

	delayedByID = dialect.SQL("queue.list-delayed", `
		SELECT id, priority, `+bareBody+`, attempt, crashes, {us run_at}, error, NULL, percent, message FROM {prefix}job_delayed
		WHERE queue_id = :queue AND divided = :divided AND id > :after ORDER BY id LIMIT :limit`)

	listRunning = dialect.SQL("queue.list-running", `
		SELECT id, priority, `+bareBody+`, attempt, crashes, COALESCE({us started_at}, 0), error, NULL, percent, message, lock_by FROM {prefix}job_running
		WHERE queue_id = :queue AND divided = :divided AND id > :after ORDER BY id LIMIT :limit`)

	listDead = dialect.SQL("queue.list-dead", `
		SELECT id, priority, `+bareBody+`, attempt, crashes, {us died_at}, error, NULL, percent, message, divided, detail FROM {prefix}job_dead
		WHERE queue_id = :queue AND id > :after ORDER BY id, divided LIMIT :limit`)

	// countReady and its like count up to a limit: nobody waits for millions. They also say
	// since when the first has been ready, how many have an id of the last minutes, and how
	// many are delayed ones that are due.
	countReady   = countIn("count-ready", "job", "id", `COALESCE(MIN(id), 0), 0, COUNT(CASE WHEN id >= :recent THEN 1 END), 0`)
	countRunning = countIn("count-running", "job_running", "id", `0, 0, COUNT(CASE WHEN id >= :recent THEN 1 END), 0`)
	countDead    = countIn("count-dead", "job_dead", "id", `0, 0, COUNT(CASE WHEN id >= :recent THEN 1 END), 0`)
	countDelayed = countIn("count-delayed", "job_delayed", "id, run_at", `0, COALESCE(MIN(CASE WHEN run_at <= {now} THEN {us run_at} END), 0),
			COUNT(CASE WHEN id >= :recent THEN 1 END), COUNT(CASE WHEN run_at <= {now} THEN 1 END)`)

	// removeRunning deletes jobs that are checked out, whoever has them: their workers see
	// that they are gone.
	removeRunning = dialect.SQL("queue.remove-running", `DELETE FROM {prefix}job_running WHERE `+these+` {only id :n}`)

	// hasten makes delayed jobs due. How many rows it changes says how many were not.
	hasten = dialect.PerDialect("queue.hasten", func(d *dialect.Dialect) string {
		return d.UpdateFrom("{prefix}job_delayed", []string{"queue_id", "divided", "id"}, `run_at = {now}`, `{prefix}job_delayed.run_at > {now}`,
			`SELECT queue AS queue_id, block AS divided, job AS id FROM {records places: queue int, block int, job int}`)
	})

	// revive copies dead jobs, whose rows are locked, among the delayed ones, due at once:
	// their ids are old, and workers would not look for them among the ready ones.
	revive = dialect.SQL("queue.revive", `
		INSERT INTO {prefix}job_delayed (queue_id, divided, run_at, priority, id, `+body+`, `+progress+`)
		SELECT j.queue_id, record.target, {now}, j.priority, j.id, `+bodyOfJ+`, `+progressOfJ+`
		FROM {records rows: queue int, block int, job int, target int}
		{join_by_key {prefix}job_dead AS j} ON j.queue_id = record.queue AND j.divided = record.block AND j.id = record.job`)

	// pending finds a block with a job that could begin: one that is ready or due, and
	// is not behind another of its key that runs or waits for its retry. It locks
	// nothing: what comes or goes meanwhile is as if that were a moment later.
	pending = dialect.SQL("queue.pending", `
		SELECT b.divided FROM {prefix}queue_block AS b
		WHERE b.queue_id = :queue AND (`+firstFree("job", "")+` OR `+firstFree("job_delayed", " AND j.run_at <= {now}")+`)
		ORDER BY b.divided LIMIT 1`)

	// advance lets time pass for delayed jobs: see package queuetest. A worker finds a
	// job that it has read by its id, wherever its time has gone meanwhile.
	advance = dialect.PerDialect("queue.advance", func(d *dialect.Dialect) string {
		return `UPDATE {prefix}job_delayed SET run_at = ` + d.Add("run_at", ":by")
	})

	// outdated finds dead jobs whose time is over.
	outdated = dialect.SQL("queue.outdated", `
		SELECT queue_id, divided, id FROM {prefix}job_dead WHERE purge_at <= {now} ORDER BY purge_at LIMIT :limit {skip_locked}`)

	// surplus finds the newest of a queue's dead jobs that are too many, and surplusDead those
	// up to it: jobs are counted by their ids, whose order is that of the key.
	surplus = dialect.SQL("queue.surplus", `
		SELECT id FROM {prefix}job_dead WHERE queue_id = :queue ORDER BY id DESC LIMIT 1 OFFSET :keep`)

	surplusDead = dialect.SQL("queue.surplus-dead", `
		SELECT queue_id, divided, id FROM {prefix}job_dead WHERE queue_id = :queue AND id <= :most ORDER BY id LIMIT :limit {skip_locked}`)

	purgeDead = dialect.SQL("queue.purge-dead", `DELETE FROM {prefix}job_dead WHERE `+these+` {only id :n}`)
)

// these are some jobs of a block, by the key of their table.
const these = `queue_id = :queue AND divided = :divided AND {in id :ids} AND id BETWEEN :least AND :most`

// anyIn tells whether some blocks have jobs in a table. It asks for the first by the
// key, and not EXISTS, for which an engine may begin anywhere in the table.
func anyIn(table string) string {
	return `(SELECT divided FROM {prefix}` + table +
		` WHERE queue_id = :queue AND divided >= :first AND divided <= :last ORDER BY divided LIMIT 1) IS NOT NULL`
}

func firstBetween(table string) string {
	return `(SELECT divided FROM {prefix}` + table +
		` WHERE queue_id = {int :queue} AND divided > above AND divided < below ORDER BY divided LIMIT 1)`
}

// firstFree tells whether a block has a job in a table that waits for no other of its
// key.
func firstFree(table, due string) string {
	return `(SELECT j.id FROM {prefix}` + table + ` AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided` +
		due + ` AND (j.job_key IS NULL
			OR NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS h WHERE h.queue_id = j.queue_id AND h.divided = j.divided AND h.hold_key = j.job_key AND h.run_at > {now})
			AND NOT EXISTS (SELECT 1 FROM {prefix}job_running AS r WHERE r.queue_id = j.queue_id AND r.divided = j.divided AND r.job_key = j.job_key)) LIMIT 1) IS NOT NULL`
}

const queueColumns = `q.queue_id, q.name, q.state, q.reason, q.ordered, q.key_retry, q.max_attempts, q.max_crashes, q.retry_delay, q.retry_max_delay,
			q.timeout, q.max_payload, q.keep_dead, q.keep_dead_max, q.keep_done, q.poll_min, q.poll_max`

// withGenerations gives a row for each generation of blocks of some queues, and one with
// no blocks for a queue that was written by hand and has none yet.
func withGenerations(queues string) string { return generationsOf(queues, "{prefix}queue_block") }

func generationsOf(queues, blocks string) string {
	return `
		SELECT ` + queueColumns + `, COALESCE(b.generation, 0), COALESCE(MIN(b.divided), 0), COUNT(b.divided), COALESCE(MIN({us b.insert_time}), 0), MAX(CASE WHEN b.fifo = 'yes' THEN 1 ELSE 0 END)
		FROM (` + queues + `) AS q LEFT JOIN ` + blocks + ` AS b ON b.queue_id = q.queue_id
		GROUP BY ` + queueColumns + `, b.generation ORDER BY q.name, b.generation`
}

// body is what a job is, wherever it stands.
const body = `kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, group_id, endpoint`

// bareBody is body without the payload.
var bareBody = strings.Replace(body, "payload, payload_bin", "NULL AS payload, NULL AS payload_bin", 1)

// bodyEnd is the number of the column after id, priority and body.
const bodyEnd = 12

// progress is what its handler has stored of a job, in all tables but that of ready jobs.
const progress = `snapshot, percent, message`

// bodyOfJ and progressOfJ are these of a table that is called j.
var (
	bodyOfJ     = "j." + strings.ReplaceAll(body, ", ", ", j.")
	progressOfJ = "j." + strings.ReplaceAll(progress, ", ", ", j.")
)

// fetchPriorities reads each priority from its cursor on, the most urgent first.
func fetchPriorities(d *dialect.Dialect) string {
	if !d.Ranges {
		return selectPriorities() + "\nLIMIT :limit"
	}
	var ranges []string
	for _, p := range priorities {
		ranges = append(ranges, "priority = "+p+" AND id > :after"+p)
	}
	return `SELECT id, priority, ` + body + ` FROM {prefix}job
		WHERE queue_id = :queue AND divided = :divided AND (` + strings.Join(ranges, " OR ") + `) ORDER BY priority, id LIMIT :limit`
}

var priorities = []string{"1", "2", "3", "4"}

// selectPriorities is a SELECT for each priority.
func selectPriorities() string { return selectReady(`id, priority, ` + body) }

func selectReady(columns string) string {
	var parts []string
	for _, p := range priorities {
		parts = append(parts, `SELECT * FROM (SELECT `+columns+` FROM {prefix}job
			WHERE queue_id = :queue AND divided = :divided AND priority = `+p+` AND id > :after`+p+` ORDER BY id LIMIT :limit) AS p`+p)
	}
	return strings.Join(parts, "\nUNION ALL ")
}

// What is inserted: column=what kind, where what is a field of the rows.
const (
	commonFields = "queue_id=queue int, divided=block int, priority=urgency int, id=job int, kind=name text, job_key=line text, payload=words json"
	rareFields   = ", payload_bin=bytes bytes, max_attempts=tries int, timeout=lasts int, trace=trace_of text, unique_key=once text, group_id=crew int, endpoint=place text"
)

// insertInto writes jobs: from arrays where there are such, which need one text for
// any number, else from a list of tuples.
func insertInto(d *dialect.Dialect, table, fields string) string {
	var columns, values, tuple, records []string
	for field := range strings.SplitSeq(fields, ", ") {
		column, what, _ := strings.Cut(field, "=")
		at := strings.LastIndex(what, " ")
		value, kind := what[:at], what[at+1:]
		name := strings.TrimSuffix(strings.TrimPrefix(value, "{time "), "}")
		columns = append(columns, column)
		tuple = append(tuple, strings.Replace(value, name, ":"+name, 1))
		switch kind {
		case "json":
			value, kind = "CAST("+value+" AS JSON)", "text"
		case "bytes":
			value, kind = "CAST("+value+" AS BYTEA)", "text"
		}
		values, records = append(values, value), append(records, name+" "+kind)
	}
	into := `INSERT INTO {prefix}` + table + ` (` + strings.Join(columns, ", ") + `) `
	if d.ArrayRows {
		return into + `SELECT ` + strings.Join(values, ", ") + ` FROM {records rows: ` + strings.Join(records, ", ") + `}`
	}
	return into + `VALUES {values rows: (` + strings.Join(tuple, ", ") + `)}`
}

// lockIn locks rows of a table that has blocks.
func lockIn(table, more string) string {
	return `SELECT j.id FROM {records places: queue int, block int, urgency int, job int}
		{join_by_key {prefix}` + table + ` AS j} ON j.queue_id = record.queue AND j.divided = record.block AND j.id = record.job` + more + `
		ORDER BY j.id {locked}`
}

// moveTo copies locked rows of one table into another. Ready jobs have a priority in
// their key. The records say the queue and the block as well, so that none of the
// table is known before a record is: engines would read the block for each.
func moveTo(to, from string, ready bool) string {
	key := "j.queue_id = record.queue AND j.divided = record.block AND j.id = record.job"
	columns := "queue_id, divided, id, priority, " + body + ", attempt, crashes, error"
	values := "j.queue_id, j.divided, j.id, j.priority, " + bodyOfJ + ", record.tries, record.died, record.why"
	if ready {
		key += " AND j.priority = record.urgency"
	} else {
		columns, values = columns+", "+progress, values+", "+progressOfJ
	}
	switch to {
	case "job_delayed":
		columns += ", run_at, hold_key"
		values += ", {now + record.later}, record.holds"
	case "job_running":
		columns += ", state, lock_by, fence, started_at"
		values += ", record.more, :node, {int :fence}, {now + record.later}"
	case "job_dead":
		columns += ", detail, died_at, purge_at"
		values += ", record.more, {now}, CASE WHEN {int :keep} < 0 THEN NULL ELSE {now + :keep} END"
	case "job_done":
		columns += ", outcome, worker, started_at, ended_at, purge_at"
		values += ", record.more, :node, {now + record.later}, {now}, {now + :keep}"
	}
	return `INSERT INTO {prefix}` + to + ` (` + columns + `)
		SELECT ` + values + `
		FROM {records rows: queue int, block int, job int, urgency int, tries int, died int, why text, more text, later int, holds text}
		{join_by_key {prefix}` + from + ` AS j} ON ` + key
}

func scanID(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) }

// skipRow is for queries whose answer says nothing.
func skipRow(rows *sql.Rows) (none struct{}, err error) {
	var text sql.NullString
	return none, rows.Scan(&text)
}

func countIn(name, table, columns, more string) *dialect.Stmt {
	return dialect.SQL("queue."+name, `
		SELECT COUNT(*), `+more+` FROM (SELECT `+columns+` FROM {prefix}`+table+` WHERE queue_id = :queue LIMIT :limit) AS counted`)
}
