package scheduler

import (
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// This file holds all SQL of the package.
//
// Two daemons are safe at once because a run begins only in a transaction that has locked its
// schedule's row and has since read the schedule's open runs. Claims and takeovers skip rows that
// another transaction has locked and wait for none. Hence they do not deadlock with transactions
// that conclude a run, which lock the schedule first (on SQLite a transaction holds the single
// writer's lock from its start). The unique key (schedule, due_at, attempt) ensures that there is
// one run for each slot and attempt. All other writes name the state that they expect in their
// WHERE, and go by the number of rows changed. A job of a schedule is inserted by the transaction
// that writes the slot's run and ends it, after the key has admitted that run: both are there, or
// neither.
var (
	// probe returns for each lane when there is something to do. It takes three index probes for
	// any number of schedules. They begin at :since, so as not to walk over entries of rows that
	// have moved on long ago.
	probe = sqlrun.SQL("scheduler.probe", `
		{union rows: SELECT :lane, {us {now}},
			(SELECT {us next_exec} FROM {prefix}schedule WHERE state = 'active' AND lane = :lane AND next_exec >= {time :since} ORDER BY next_exec LIMIT 1),
			(SELECT {us next_exec} FROM {prefix}run WHERE lane = :lane AND next_exec >= {time :since} ORDER BY next_exec LIMIT 1),
			(SELECT COUNT(*) FROM (SELECT id FROM {prefix}schedule WHERE state = 'active' AND lane = :lane AND next_exec IS NULL LIMIT 1) AS unplanned),
			CASE WHEN EXISTS (SELECT 1 FROM {prefix}node WHERE name = :node AND drained_at IS NOT NULL) THEN 1 ELSE 0 END}`)

	// due locks the schedules of a lane whose slot is due, oldest first.
	due = sqlrun.SQL("scheduler.due", `
		SELECT `+lockedColumns+` FROM {prefix}schedule
		WHERE state = 'active' AND lane = :lane AND next_exec >= {time :since} AND next_exec <= {now}
		ORDER BY next_exec LIMIT :limit {skip_locked}`)

	// unplanned locks rows without a slot: inserted or resumed by hand.
	unplanned = sqlrun.SQL("scheduler.unplanned", `
		SELECT `+lockedColumns+` FROM {prefix}schedule
		WHERE state = 'active' AND lane = :lane AND next_exec IS NULL AND id NOT IN (:but)
		LIMIT :limit {skip_locked}`)

	// lockNamed locks schedules whose runs may begin. It skips those that are locked.
	lockNamed = sqlrun.SQL("scheduler.lock-named", `
		SELECT `+lockedColumns+` FROM {prefix}schedule WHERE name IN (:names) {skip_locked}`)

	// lockOne locks a schedule, waiting for other transactions.
	lockOne = sqlrun.SQL("scheduler.lock-one", `
		SELECT `+lockedColumns+` FROM {prefix}schedule WHERE name = :name {locked}`)

	// settingsOf reads the settings of locked schedules column by column.
	settingsOf = sqlrun.SQL("scheduler.settings-of", `
		SELECT `+columns+` FROM {prefix}schedule WHERE id IN (:ids)`)

	// existing returns which of some schedules exist, locked or not.
	existing = sqlrun.SQL("scheduler.existing", `SELECT name FROM {prefix}schedule WHERE name IN (:names)`)

	// move advances locked schedules to their next slot and counts what begins.
	move = sqlrun.PerDialect("scheduler.move", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}schedule", []string{"id"},
			`due_at = picked.new_due, next_exec = picked.new_next, reason = '', fence = fence + picked.begun, update_time = {now}`, "",
			`SELECT id, {time due} AS new_due, {time upcoming} AS new_next, begun FROM {records rows: id int, due int, upcoming int, begun int}`)
	})

	// plan gives a slot to locked schedules that have none, and records the spec it is based
	// on. move need not do so: its schedules have been planned.
	plan = sqlrun.PerDialect("scheduler.plan", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}schedule", []string{"id"},
			`due_at = picked.new_due, next_exec = picked.new_next, reason = '', planned = picked.noted, update_time = {now}`, "",
			`SELECT id, {time due} AS new_due, {time upcoming} AS new_next, noted FROM {records rows: id int, due int, upcoming int, noted text}`)
	})

	// unplan removes the slot from schedules whose spec, zone or DST rule was changed by other
	// programs since they were planned. The column stale marks them, and its index contains no
	// others. A slot that is already due is claimed first, and a locked schedule is left to a
	// later check.
	unplan = sqlrun.PerDialect("scheduler.unplan", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}schedule", []string{"id"}, `next_exec = NULL, update_time = {now}`, "",
			`SELECT id FROM {prefix}schedule WHERE stale = 1 AND state = 'active' AND due_at > {now} LIMIT :limit {skip_locked}`)
	})

	// unplanAhead removes the slot from schedules with an interval that were last changed at a time that has yet to come: the database's
	// clock went back, and their slot is further off than one interval. The slots up to that one come for the second time, and have runs
	// and Idempotency-Keys of then: a millisecond, which they keep from then on, makes them others. So it does for one that is paused, and
	// resumed before that time. Slots of other specs are times of day: one that has been had is not had again, so those wait.
	unplanAhead = sqlrun.PerDialect("scheduler.unplan-ahead", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}schedule", []string{"id"}, `due_at = {time {us due_at} + 1000}, next_exec = NULL, update_time = {now}`, "",
			`SELECT id FROM {prefix}schedule WHERE LOWER(spec) LIKE '@every %' AND update_time > {now + :slack} AND due_at > {now}
			LIMIT :limit {skip_locked}`)
	})

	// putOff and putOffRun postpone a schedule or a run that could not be claimed, and record why.
	// Its slot stays the same. If somebody has claimed or changed the row since, its next_exec
	// differs, and it is left alone.
	putOff = sqlrun.UpdateFree("scheduler.put-off", "{prefix}schedule", []string{"id"},
		`next_exec = {now + :after}, reason = :reason, update_time = {now}`, `id = :id AND state = 'active' AND next_exec <= {now}`)

	putOffRun = sqlrun.UpdateFree("scheduler.put-off-run", "{prefix}run", []string{"id"},
		`next_exec = {now + :after}, error = CASE WHEN state = 'waiting' THEN :reason ELSE error END`, `id = :id AND next_exec <= {now}`)

	// disable takes a locked schedule out of service, for good or until somebody resumes it.
	disable = sqlrun.SQL("scheduler.disable", `
		UPDATE {prefix}schedule
		SET state = :state, reason = :reason, next_exec = NULL, fence = fence + :begun, update_time = {now}
		WHERE id = :id AND state = 'active'`)

	// failed counts consecutive failed slots of locked schedules.
	failed = sqlrun.PerDialect("scheduler.failed", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}schedule", []string{"id"}, `failures = picked.counted, update_time = {now}`, "",
			`SELECT id, counted FROM {records rows: id int, counted int}`)
	})

	// open lists the open runs of schedules. The schedules are locked, so no run can begin
	// meanwhile. A run that ends meanwhile counts as open.
	open = sqlrun.PerDialect("scheduler.open", func(d *sqlrun.Dialect) string {
		among := "IN (:names)"
		if d.ArrayRows { // one text, which is prepared once, for any number of names
			among = "= ANY (CAST(:rows.name AS TEXT[]))"
		}
		return `
		SELECT id, schedule, {us due_at}, attempt, state, failures FROM {prefix}run
		WHERE schedule ` + among + ` AND ` + unended + ` ORDER BY due_at, attempt`
	})

	// begin inserts the runs of a claim. A run that exists already for the slot and attempt is
	// left alone: the key decides, not the claim.
	begin = sqlrun.PerDialect("scheduler.begin", func(d *sqlrun.Dialect) string {
		text := `
		INSERT INTO {prefix}run (schedule, lane, due_at, attempt, cause, state, failures, crashes, fence, exec_by, claim, next_exec, started_at)
		SELECT name, path, {time due}, nth, why, 'running', failed, crashed, number, :owner, :claim, {now + :lease}, {now}
		FROM ` + pending + `
		WHERE nth > 0 {ignore_duplicate attempt}`
		if d.Returning != nil {
			text += " RETURNING " + begunColumns
		}
		return text
	})

	// resume begins runs that waited. Their rows are locked.
	resume = sqlrun.PerDialect("scheduler.resume", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}run", []string{"id"},
			`state = 'running', error = '', fence = picked.new_fence, exec_by = :owner, claim = :claim, next_exec = {now + :lease}, started_at = {now}`,
			`state = 'waiting'`, `SELECT id, fence AS new_fence FROM {records rows: id int, fence int}`)
	})

	// count gives locked schedules their new fences.
	count = sqlrun.PerDialect("scheduler.count", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}schedule", []string{"id"}, `fence = picked.new_fence`, "",
			`SELECT id, fence AS new_fence FROM {records rows: id int, fence int}`)
	})

	// begun returns the runs that a claim has begun, by its token, which is fresh.
	begun = sqlrun.SQL("scheduler.begun", `
		SELECT `+begunColumns+` FROM {prefix}run
		WHERE claim = :claim AND schedule IN (:names) AND `+unended)

	// wait inserts runs for later: for their time, or for the end of the previous run. It needs no
	// lock, because a waiting run is checked again before it begins.
	wait = sqlrun.SQL("scheduler.wait", `
		INSERT INTO {prefix}run (schedule, lane, due_at, attempt, cause, state, failures, crashes, next_exec)
		SELECT name, path, {time due}, nth, why, 'waiting', failed, crashed, {now + after_us}
		FROM `+pending+`
		WHERE nth > 0 {ignore_duplicate attempt}`)

	// chain inserts a run of the schedule that another one starts.
	chain = sqlrun.SQL("scheduler.chain", `
		INSERT INTO {prefix}run (schedule, lane, due_at, attempt, cause, by_run, state, next_exec)
		SELECT name, lane, {time :due}, 1, 'chain', {int :by}, 'waiting', {now} FROM {prefix}schedule WHERE name = :name
		{ignore_duplicate attempt}`)

	// postpone lets runs that cannot begin yet wait on.
	postpone = sqlrun.SQL("scheduler.postpone", `
		UPDATE {prefix}run SET next_exec = {now + :after} WHERE id IN (:ids) AND state = 'waiting'`)

	// release lets runs whose turn has come begin, if they are waiting for that. It passes over those that
	// others have locked; unreleased returns them.
	release    = sqlrun.UpdateFree("scheduler.release", "{prefix}run", []string{"id"}, `next_exec = {now}`, waitsForItsTurn)
	unreleased = sqlrun.SQL("scheduler.unreleased", `SELECT id FROM {prefix}run WHERE `+waitsForItsTurn)

	// newest returns the newest run of each of some schedules, as one text: the range that further
	// slots may lengthen, unless there are runs at or after these slots. The schedules are locked, so
	// nobody else lengthens it. A join, in place of the inner query, would read the whole table where
	// statistics say that it is small.
	newest = sqlrun.SQL("scheduler.newest", `
		SELECT name, (
			SELECT CONCAT_WS('`+between+`', n.id, {us n.due_at}, n.state, COALESCE({us n.due_to}, 0), n.error) FROM {prefix}run AS n
			WHERE n.schedule = record.name ORDER BY n.due_at DESC, n.attempt DESC LIMIT 1)
		FROM {records rows: name text}`)

	// lengthen adds slots to ranges. It passes over ranges that others have locked; those that were purged
	// since they were read are not there.
	lengthen = sqlrun.PerDialect("scheduler.lengthen", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}run", []string{"id"}, `
			due_to = {time picked.upto}, slots = slots + picked.more, finished_at = {now},
			purge_at = CASE WHEN picked.keep < 0 THEN NULL ELSE {now + picked.keep} END`,
			`state = picked.outcome`+byID(d, "{prefix}run"),
			freeRuns(d, `outcome, upto, more, keep`, `outcome text, upto int, more int, keep int`))
	})

	// free locks those of some runs that are there and that no other transaction has locked, and returns whose they are.
	// seen returns it of all that are there. What is seen and not free, another transaction has locked.
	free = sqlrun.SQL("scheduler.free", ownership+` {skip_locked}`)
	seen = sqlrun.SQL("scheduler.seen", ownership)

	// pass inserts ranges of slots that do not run, with the reason.
	pass = sqlrun.SQL("scheduler.pass", `
		INSERT INTO {prefix}run (schedule, lane, due_at, attempt, state, due_to, slots, finished_at, error, purge_at)
		SELECT name, path, {time since}, 1, outcome, {time upto}, more, {now}, why, CASE WHEN keep < 0 THEN NULL ELSE {now + keep} END
		FROM {records rows: name text, path text, outcome text, since int, upto int, more int, why text, keep int}
		WHERE more > 0 {ignore_duplicate attempt}`)

	// expired locks the runs of a lane whose lease has expired or whose time to begin has come.
	expired = sqlrun.SQL("scheduler.expired", `
		SELECT id, schedule, {us due_at}, attempt, cause, state, failures, crashes, stops, COALESCE(cancel, '') FROM {prefix}run
		WHERE lane = :lane AND next_exec >= {time :since} AND next_exec <= {now}
		ORDER BY next_exec LIMIT :limit {skip_locked}`)

	// lose ends locked runs that nobody will finish, each with its own state and reason.
	lose = sqlrun.PerDialect("scheduler.lose", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}run", []string{"id"}, `
			state = picked.outcome, finished_at = {now}, next_exec = NULL, claim = NULL,
			purge_at = CASE WHEN picked.keep < 0 THEN NULL ELSE {now + picked.keep} END,
			error = CASE WHEN error = '' THEN picked.why WHEN picked.more = 1 THEN CONCAT(error, '; ', picked.why) ELSE error END`,
			ofMany(d, `state IN ('waiting', 'running', 'retry')`)+byID(d, "{prefix}run"), `
			SELECT id, outcome, why, more, keep FROM {records rows: id int, outcome text, why text, more int, keep int}`)
	})

	// renew extends leases, but not those of runs that others have locked. An expired lease is not revived, even if
	// nobody has claimed the run yet. The counter makes every renewal a change, for pools that count changed rows.
	renew = sqlrun.UpdateFree("scheduler.renew", "{prefix}run", []string{"id"}, `next_exec = {now + :lease}, renewals = renewals + 1`, leasedHere)

	// renewed returns, after renew in the same transaction, which of the leases that have not expired are
	// not locked by others, and leased all of them.
	renewed = sqlrun.SQL("scheduler.renewed", `SELECT id FROM {prefix}run WHERE `+leasedHere+` {skip_locked}`)
	leased  = sqlrun.SQL("scheduler.leased", `SELECT id FROM {prefix}run WHERE `+leasedHere)

	// finish writes outcomes. It skips runs that others have locked, and those that were lost meanwhile: their state
	// is no longer running, and the token is gone. A run that enqueued nothing, as its job's unique key is in
	// use, is a skipped range of one slot.
	finish = sqlrun.PerDialect("scheduler.finish", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}run", []string{"id"}, `
			state = picked.outcome, finished_at = {now}, exit_code = picked.code, error = picked.why, output = picked.said,
			due_to = CASE WHEN picked.outcome = 'skipped' THEN due_at ELSE due_to END,
			next_exec = NULL, claim = NULL, cancel = NULL,
			purge_at = CASE WHEN picked.keep < 0 THEN NULL ELSE {now + picked.keep} END`,
			`claim = picked.token AND `+ofMany(d, `state = 'running'`)+byID(d, "{prefix}run"),
			freeRuns(d, `record.claim AS token, outcome, exit_status AS code, why, said, keep`,
				`claim text, outcome text, exit_status int, why text, said text, keep int`))
	})

	// handBack ends the lease of a run that this daemon will not finish, so that the next poll of
	// any daemon takes it over. State retry marks it as handed back, state running as crashed.
	handBack = sqlrun.UpdateFree("scheduler.hand-back", "{prefix}run", []string{"id"},
		`state = :left, next_exec = {now + :after}, finished_at = {now}, stops = :stops, error = :error, output = :output`,
		`id = :id AND claim = :claim AND state = 'running'`)

	// carryStops notes at the attempts that go on with runs that were handed back how often that has happened.
	carryStops = sqlrun.SQL("scheduler.carry-stops", `
		UPDATE {prefix}run SET stops = :stops WHERE id IN (:ids) AND claim = :claim AND state = 'running'`)

	// pausing locks the runs of a lane that pause since daemons were stopped soon after they had begun. It leaves out
	// those that were handed back only now.
	pausing = sqlrun.SQL("scheduler.pausing", `
		SELECT id FROM {prefix}run
		WHERE lane = :lane AND next_exec > {now} AND next_exec < {time 253402300799000000}
			AND state = 'retry' AND stops > 0 AND finished_at <= {now + :since}
		ORDER BY next_exec LIMIT :limit {skip_locked}`)

	acquit = sqlrun.SQL("scheduler.acquit", `UPDATE {prefix}run SET stops = 0, next_exec = {now} WHERE id IN (:ids) AND state = 'retry'`)

	// forget is handBack for a claim whose commit may or may not have happened.
	forget = sqlrun.SQL("scheduler.forget", `
		UPDATE {prefix}run SET state = 'retry', next_exec = {now}, error = 'the answer to the claim was lost'
		WHERE claim = :claim AND schedule IN (:names) AND state = 'running' AND `+unended)

	// publish writes the output of a run that is still running, and that it should have ended.
	publish = sqlrun.UpdateFree("scheduler.publish", "{prefix}run", []string{"id"}, `output = :output, error = :error`,
		`id = :id AND claim = :claim AND state = 'running'`)

	// unwanted returns the runs whose cancellation was requested.
	unwanted = sqlrun.SQL("scheduler.unwanted", `
		SELECT id, cancel FROM {prefix}run WHERE id IN (:ids) AND cancel IS NOT NULL`)

	// dismiss asks the daemons of running runs to end them. Any daemon ends one that was handed back.
	dismiss = sqlrun.SQL("scheduler.dismiss", `
		UPDATE {prefix}run SET cancel = :why, next_exec = CASE WHEN state = 'retry' AND next_exec > {now} THEN {now} ELSE next_exec END
		WHERE id IN (:ids) AND state IN ('running', 'retry')`)

	// outdated locks runs whose retention is over; surplus locks those of a schedule before the slot of the last
	// one that it keeps. All attempts at that slot stay: otherwise a slot with more attempts than the schedule keeps
	// would take all others with it, and itself.
	outdated = sqlrun.SQL("scheduler.outdated", `
		SELECT id FROM {prefix}run WHERE purge_at <= {now} ORDER BY purge_at LIMIT :limit {skip_locked}`)

	surplus = sqlrun.SQL("scheduler.surplus", `
		SELECT id FROM {prefix}run
		WHERE schedule = :schedule AND next_exec IS NULL AND due_at < (
			SELECT due_at FROM {prefix}run WHERE schedule = :schedule ORDER BY due_at DESC LIMIT 1 OFFSET :newer)
		ORDER BY due_at LIMIT :limit {skip_locked}`)

	purge = sqlrun.DeleteFree("scheduler.purge", "{prefix}run", []string{"id"}, `id IN (:ids) AND next_exec IS NULL`)

	// These statements record that the daemon is alive, for people and tools: no claim depends on
	// them. Only the daemon itself writes its row, and its name is never reused. What a killed
	// daemon left is deleted after a day, as is the row of a worker that has been dead for so long;
	// others treat it as gone when its lease expires.
	arrive = sqlrun.SQL("scheduler.arrive",
		`INSERT INTO {prefix}node (name, state, expire_at, started_at, version, tags) VALUES (:node, 'live', {now + :lease}, {now}, :version, :tags)`)
	stay  = sqlrun.SQL("scheduler.stay", `UPDATE {prefix}node SET state = 'live', expire_at = {now + :lease}, heartbeats = heartbeats + 1 WHERE name = :node`)
	leave = sqlrun.SQL("scheduler.leave", `DELETE FROM {prefix}node WHERE name = :node`)

	// noteProblem writes a column that nobody else writes: the process alone does, for all its parts.
	noteProblem = sqlrun.SQL("scheduler.note-problem", `UPDATE {prefix}node SET problem = :problem WHERE name >= :from AND name < :to`)

	// drain and undrain go by the state they find. A row that is gone or no longer live stays so.
	drain = sqlrun.SQL("scheduler.drain", `
		UPDATE {prefix}node SET drained_at = {now}, drained_by = :by WHERE name IN (:names) AND state = 'live' AND drained_at IS NULL`)
	undrain = sqlrun.SQL("scheduler.undrain", `
		UPDATE {prefix}node SET drained_at = NULL, drained_by = '' WHERE name IN (:names) AND drained_at IS NOT NULL`)

	// begunBy counts what processes must still finish: runs, and long jobs and leased blocks.
	begunBy = sqlrun.SQL("scheduler.begun-by", `
		SELECT (SELECT COUNT(*) FROM {prefix}run WHERE exec_by IN (:names) AND state = 'running' AND `+unended+`),
			(SELECT COUNT(*) FROM {prefix}queue_block WHERE lock_by IN (:names) AND state = 'LEASED')
			+ (SELECT COUNT(*) FROM {prefix}job_running WHERE lock_by IN (:names))`)

	// departed finds them, and forgetNodes deletes them if nobody has locked them. It looks at the time again, and a
	// name without a worker gets none.
	departed = sqlrun.SQL("scheduler.departed", `
		SELECT name FROM {prefix}node WHERE expire_at < {now + :since}
			AND NOT EXISTS (SELECT 1 FROM {prefix}queue_worker AS w WHERE w.node = name) LIMIT :limit`)
	forgetNodes = sqlrun.DeleteFree("scheduler.forget-nodes", "{prefix}node", []string{"name"},
		`name IN (:names) AND expire_at < {now + :since}`)

	// announce wakes the daemons after a transaction that has changed something for them.
	announce = sqlrun.PerDialect("scheduler.announce", func(d *sqlrun.Dialect) string {
		if d.Notify == nil {
			return "SELECT 1"
		}
		return "SELECT " + d.Notify("CAST(:channel AS TEXT)", "''")
	})

	// readClock reads the clock for planning.
	readClock = sqlrun.SQL("scheduler.instant", `SELECT {us {now}}`)

	insert = sqlrun.SQL("scheduler.insert", `
		INSERT INTO {prefix}schedule (name, source, source_key, `+setting.Columns(settingColumns)+`,
			state, reason, due_at, next_exec, planned, insert_time, update_time)
		VALUES (:name, :source, :source_key, `+setting.Values(settingColumns)+`,
			:state, :reason, {time :due}, {time :next}, :planned, {now}, {now})`)

	list = sqlrun.SQL("scheduler.list", `
		SELECT `+columns+` FROM {prefix}schedule WHERE name > :after ORDER BY name LIMIT :limit`)

	// weigh returns the sizes of the texts of those that list would read.
	weigh = sqlrun.SQL("scheduler.weigh", `
		SELECT `+weights+` FROM {prefix}schedule WHERE name > :after ORDER BY name LIMIT :limit`)

	get = sqlrun.SQL("scheduler.get", `
		SELECT `+columns+` FROM {prefix}schedule WHERE name = :name`)

	ofSource = sqlrun.SQL("scheduler.of-source", `
		SELECT `+columns+` FROM {prefix}schedule WHERE source = :source`)

	// update and replan change a schedule that was read in the same transaction; replan does so
	// only if no daemon has moved it to another slot since.
	update = sqlrun.SQL("scheduler.update", `
		UPDATE {prefix}schedule SET `+assigned+`, update_time = {now}
		WHERE id = :id AND COALESCE(source, '') = COALESCE(:source, '')`)

	replan = sqlrun.SQL("scheduler.replan", `
		UPDATE {prefix}schedule
		SET `+assigned+`,
			due_at = {time :due}, next_exec = {time :next}, planned = :planned, update_time = {now}, state = :state, reason = :reason, failures = 0
		WHERE id = :id AND COALESCE(source, '') = COALESCE(:source, '') AND COALESCE({us due_at}, 0) = :seen`)

	// takeSource changes the source of a locked schedule.
	takeSource = sqlrun.SQL("scheduler.take-source", `
		UPDATE {prefix}schedule SET source = :source, source_key = :key, update_time = {now}
		WHERE id = :id AND COALESCE(source, '') <> :source`)

	// relane moves waiting runs to the daemons that may run the schedule now. Runs of one host have
	// a lane of their own, and keep it.
	relane = sqlrun.SQL("scheduler.relane", `
		UPDATE {prefix}run SET lane = :lane WHERE schedule = :schedule AND lane = :old AND state = 'waiting' AND `+unended)

	// pause and unpause go by the state they find.
	pause = sqlrun.SQL("scheduler.pause", `
		UPDATE {prefix}schedule SET state = 'paused', reason = :reason, next_exec = NULL, update_time = {now}
		WHERE name = :name AND state = 'active'`)

	unpause = sqlrun.SQL("scheduler.unpause", `
		UPDATE {prefix}schedule SET state = 'active', reason = '', failures = 0, next_exec = NULL, update_time = {now}
		WHERE name = :name AND state <> 'active'`)

	removeOfSource = sqlrun.SQL("scheduler.remove-of-source", `
		DELETE FROM {prefix}schedule WHERE id IN (:ids) AND source = :source`)

	remove = sqlrun.SQL("scheduler.remove", `DELETE FROM {prefix}schedule WHERE name = :name`)

	history = sqlrun.SQL("scheduler.history", `
		SELECT `+runColumns+` FROM {prefix}run WHERE schedule = :schedule
		ORDER BY due_at DESC, attempt DESC LIMIT :limit`)

	historyOfAll = sqlrun.SQL("scheduler.history-of-all", `
		SELECT `+runColumns+` FROM {prefix}run ORDER BY id DESC LIMIT :limit`)

	getRun = sqlrun.SQL("scheduler.get-run", `
		SELECT `+runColumns+` FROM {prefix}run WHERE id = :id {locked}`)

	showRun = sqlrun.SQL("scheduler.show-run", `SELECT `+runColumns+` FROM {prefix}run WHERE id = :id`)

	// attemptsAt returns the attempts of schedules at slots from one to another.
	attemptsAt = sqlrun.SQL("scheduler.attempts-at", `
		SELECT schedule, {us due_at}, attempt, state, next_exec IS NOT NULL FROM {prefix}run
		WHERE schedule IN (:names) AND due_at >= {time :from} AND due_at <= {time :to} ORDER BY due_at, attempt`)

	runOf = sqlrun.SQL("scheduler.run-of", `
		SELECT `+runColumns+` FROM {prefix}run WHERE schedule = :schedule AND due_at = {time :due} AND attempt = 1`)
)

// unended selects open runs: few, and in an index of their own. For a range with two ends
// PostgreSQL expects few rows even without statistics; for IS NOT NULL it would expect all of them
// and read the table.
const unended = `next_exec > {time 0} AND next_exec < {time 253402300799000000}`

// byID names the ids of the runs that a statement changes a second time, as an array. Where records
// are arrays, the plan then uses the primary key whatever the statistics say.
func byID(d *sqlrun.Dialect, runs string) string {
	if !d.ArrayRows {
		return ""
	}
	return ` AND ` + runs + `.id = ANY (CAST(:rows.id AS BIGINT[]))`
}

// ofMany is a condition that all runs but a few fulfill to which byID limits a statement. If PostgreSQL took it for
// a rare one, as it is among all runs, it would compare each run with each record.
func ofMany(d *sqlrun.Dialect, condition string) string {
	if !d.ArrayRows {
		return condition
	}
	return `COALESCE(` + condition + `, FALSE)`
}

// freeRuns picks runs that are given by records, with more columns of these, and locks their rows. It
// passes over rows that others have locked. With a LIMIT: see sqlrun.UpdateFree.
func freeRuns(d *sqlrun.Dialect, columns, records string) string {
	return `SELECT r.id, ` + columns + ` FROM {records rows: id int, ` + records + `}
			{join_by_key {prefix}run AS r} ON r.id = record.id` + byID(d, "r") + ` LIMIT 10000 {skip_locked}`
}

// leasedHere selects those of some runs whose leases this daemon has.
const leasedHere = `id IN (:ids) AND exec_by = :owner AND state = 'running' AND next_exec > {now}`

// waitsForItsTurn selects those of some runs that wait for others of their schedules to end.
const waitsForItsTurn = `id IN (:ids) AND state = 'waiting' AND failures = 0 AND next_exec > {now}`

const ownership = `SELECT id, state, COALESCE(claim, '') FROM {prefix}run WHERE id IN (:ids)`

// pending are the runs to insert. No column shares its name with one of the table of runs, and the
// condition that follows it is always true: both for engines whose parsers would otherwise mistake
// what comes after.
const pending = `{records rows: name text, path text, due int, nth int, why text, failed int, crashed int, number int, after_us int}`

const begunColumns = `id, schedule, {us due_at}, attempt, cause, failures, crashes, fence, lane`

// What a schedule is told to do, as it is written and read: see settings.go.
var (
	assigned     = setting.Assignments(settingColumns)
	settingsRead = setting.Expressions(settingColumns, "")
)

const stateColumns = `id, name, COALESCE(source, ''), COALESCE(source_key, ''), state, reason, COALESCE({us due_at}, 0), failures`

var columns = stateColumns + `, ` + settingsRead

const weights = `OCTET_LENGTH(command) + OCTET_LENGTH(stdin) + OCTET_LENGTH(env) + OCTET_LENGTH(headers) + OCTET_LENGTH(dir) + OCTET_LENGTH(reason)`

// lockedColumns are those of a schedule that a daemon has locked. Its settings are one text: see
// settings_cache.go.
var lockedColumns = stateColumns + `, COALESCE({us next_exec}, 0), fence, lane, {us {now}},
			CONCAT_WS('` + between + `', ` + settingsRead + `)`

const runColumns = `id, schedule, {us due_at}, attempt, cause, state, COALESCE({us due_to}, 0), slots, exec_by, fence, COALESCE({us next_exec}, 0),
			COALESCE({us started_at}, 0), COALESCE({us finished_at}, 0), COALESCE(exit_code, -1), error, output, COALESCE(cancel, ''), stops`
