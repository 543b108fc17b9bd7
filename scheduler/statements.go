package scheduler

import "github.com/dbcron/dbcron/dialect"

// All SQL of this package.
//
// What makes two daemons safe at once: a claim and a takeover are each one
// transaction that begins with a SELECT that locks its rows and passes over
// rows that another transaction has locked (on SQLite the transaction holds
// the one writer's lock from its start). What they write about a slot is under
// the unique key (schedule, due_at, attempt) of run. All other writes name the
// state that they found in their WHERE, and go by the number of rows changed.
var (
	// probe tells how long there is nothing to do: three index probes, the
	// same for any number of schedules. What is no instant has been written by
	// hand; it counts as due, for the claim to deal with.
	probe = dialect.SQL("scheduler.probe", `
		SELECT {us {now}},
			(SELECT COALESCE({us next_exec}, 0) FROM {prefix}schedule WHERE state = 'active' AND next_exec IS NOT NULL ORDER BY next_exec LIMIT 1),
			(SELECT COALESCE({us next_exec}, 0) FROM {prefix}run WHERE next_exec IS NOT NULL ORDER BY next_exec LIMIT 1),
			(SELECT COUNT(*) FROM (SELECT id FROM {prefix}schedule WHERE state = 'active' AND next_exec IS NULL LIMIT 1) AS unplanned)`)

	// due locks the schedules whose slot has come, oldest first.
	due = dialect.SQL("scheduler.due", `
		SELECT id, name, spec, time_zone, dst, command, stdin, env, COALESCE({us due_at}, {us next_exec}, 0), {us {now}}
		FROM {prefix}schedule
		WHERE state = 'active' AND next_exec <= {now}
		ORDER BY next_exec LIMIT :limit {skip_locked}`)

	// unplanned locks rows that were inserted by hand and have no slot yet.
	unplanned = dialect.SQL("scheduler.unplanned", `
		SELECT id, name, spec, time_zone, dst, command, stdin, env, {us {now}}, {us {now}}
		FROM {prefix}schedule
		WHERE state = 'active' AND next_exec IS NULL
		LIMIT :limit {skip_locked}`)

	// move gives locked schedules their next slot.
	move = dialect.PerDialect("scheduler.move", func(d *dialect.Dialect) string {
		return d.UpdateFrom("{prefix}schedule", []string{"id"},
			`due_at = picked.new_due, next_exec = picked.new_due, update_time = {now}`,
			`{union rows: SELECT {int :id} AS id, {time :due} AS new_due}`)
	})

	// disable takes a locked schedule that cannot be planned out of the race.
	disable = dialect.SQL("scheduler.disable", `
		UPDATE {prefix}schedule SET state = 'failed', reason = :reason, next_exec = NULL, update_time = {now}
		WHERE id = :id AND state = 'active'`)

	// active tells which of the schedules still have a run under way. The
	// schedules are locked, so no run of theirs can begin meanwhile; one that
	// ends meanwhile is taken to be under way, and its successor is skipped.
	//
	// Few runs are under way, and the index by next_exec has only them. COALESCE
	// keeps engines from the index by schedule, which has the whole history. Of a
	// range with two ends PostgreSQL expects few rows, even without statistics;
	// of IS NOT NULL it would expect all, and read the table.
	active = dialect.SQL("scheduler.active", `
		SELECT schedule FROM {prefix}run
		WHERE next_exec > {time 0} AND next_exec < {time 253402300799000000} AND COALESCE(schedule, '') IN (:names)`)

	// begin writes the runs of a claim. One whose slot and attempt exist
	// already is left as it is: the key decides, not the claim.
	begin = dialect.SQL("scheduler.begin", `
		INSERT INTO {prefix}run (schedule, due_at, attempt, state, exec_by, claim, next_exec, started_at)
		VALUES {values rows: (:schedule, {time :due}, :attempt, 'running', :owner, :claim, {now + :lease}, {now})}
		{ignore_duplicate attempt}`)

	// begun tells which runs a claim has written, by its token.
	begun = dialect.SQL("scheduler.begun", `
		SELECT id, schedule, {us due_at}, attempt FROM {prefix}run WHERE claim = :claim`)

	// newest finds the stretch of slots that a further slot may belong to. The
	// schedule is locked, so nobody else lengthens it.
	newest = dialect.SQL("scheduler.newest", `
		SELECT id, state, error FROM {prefix}run
		WHERE schedule = :schedule AND due_at < {time :from}
		ORDER BY due_at DESC, attempt DESC LIMIT 1`)

	lengthen = dialect.SQL("scheduler.lengthen", `
		UPDATE {prefix}run SET due_to = {time :to}, slots = slots + :slots, finished_at = {now}
		WHERE id = :id AND state = :state`)

	// pass writes slots that do not run, and why.
	pass = dialect.SQL("scheduler.pass", `
		INSERT INTO {prefix}run (schedule, due_at, attempt, state, due_to, slots, finished_at, error)
		VALUES (:schedule, {time :from}, 1, :state, {time :to}, :slots, {now}, :error)
		{ignore_duplicate attempt}`)

	// expired locks the runs whose lease has ended.
	expired = dialect.SQL("scheduler.expired", `
		SELECT id, schedule, {us due_at}, attempt, state FROM {prefix}run
		WHERE next_exec <= {now}
		ORDER BY next_exec LIMIT :limit {skip_locked}`)

	// deaths counts the attempts at a slot whose daemon died. The slot's last run
	// is locked, so no attempt can be added meanwhile.
	deaths = dialect.SQL("scheduler.deaths", `
		SELECT COUNT(*) FROM {prefix}run WHERE schedule = :schedule AND due_at = {time :due} AND state = 'lost'`)

	// byName reads what is to be run for schedules that need not be due.
	byName = dialect.SQL("scheduler.by-name", `
		SELECT id, name, spec, time_zone, dst, command, stdin, env, {us {now}}, {us {now}}
		FROM {prefix}schedule WHERE state = 'active' AND name IN (:names)`)

	// lose ends a locked run whose daemon no longer answers for it.
	lose = dialect.SQL("scheduler.lose", `
		UPDATE {prefix}run
		SET state = :state, finished_at = {now}, next_exec = NULL, claim = NULL,
			error = CASE WHEN error = '' THEN :error ELSE error END
		WHERE id IN (:ids) AND state IN ('running', 'retry')`)

	// renew holds on to runs. One whose lease has ended is not taken back,
	// even if nobody has claimed it yet. The counter makes every renewal a
	// change, for pools that count changed rows.
	renew = dialect.SQL("scheduler.renew", `
		UPDATE {prefix}run SET next_exec = {now + :lease}, renewals = renewals + 1
		WHERE id IN (:ids) AND exec_by = :owner AND state = 'running' AND next_exec > {now}`)

	// finish writes a run's outcome, unless it was lost meanwhile: then the
	// state is no longer running, and the token is gone.
	finish = dialect.SQL("scheduler.finish", `
		UPDATE {prefix}run
		SET state = :state, finished_at = {now}, exit_code = :exit_code, error = :error, output = :output,
			next_exec = NULL, claim = NULL
		WHERE id = :id AND claim = :claim AND state = 'running'`)

	// handBack ends the lease of a run that this daemon will not finish, so
	// that the next poll of any daemon takes it over: as one that was handed
	// back if it is left in the state retry, and like a crash if in running.
	handBack = dialect.SQL("scheduler.hand-back", `
		UPDATE {prefix}run SET state = :left, next_exec = {now}, error = :error, output = :output
		WHERE id = :id AND claim = :claim AND state = 'running'`)

	// forget is handBack for a claim whose commit may or may not have happened.
	forget = dialect.SQL("scheduler.forget", `
		UPDATE {prefix}run SET state = 'retry', next_exec = {now}, error = 'the answer to the claim was lost'
		WHERE claim = :claim AND state = 'running'`)

	// readClock reads the clock, to plan from.
	readClock = dialect.SQL("scheduler.instant", `SELECT {us {now}}`)

	insert = dialect.SQL("scheduler.insert", `
		INSERT INTO {prefix}schedule (name, source, source_key, spec, time_zone, dst, command, stdin, env,
			due_at, next_exec, insert_time, update_time)
		VALUES (:name, :source, :key, :spec, :zone, :dst, :command, :stdin, :env,
			{time :due}, {time :due}, {now}, {now})`)

	list = dialect.SQL("scheduler.list", `
		SELECT id, name, COALESCE(source, ''), COALESCE(source_key, ''), spec, time_zone, dst, command, stdin, env,
			state, reason, COALESCE({us due_at}, 0)
		FROM {prefix}schedule WHERE name > :after ORDER BY name LIMIT :limit`)

	get = dialect.SQL("scheduler.get", `
		SELECT id, name, COALESCE(source, ''), COALESCE(source_key, ''), spec, time_zone, dst, command, stdin, env,
			state, reason, COALESCE({us due_at}, 0)
		FROM {prefix}schedule WHERE name = :name`)

	ofSource = dialect.SQL("scheduler.of-source", `
		SELECT id, name, COALESCE(source, ''), COALESCE(source_key, ''), spec, time_zone, dst, command, stdin, env,
			state, reason, COALESCE({us due_at}, 0)
		FROM {prefix}schedule WHERE source = :source`)

	// update and replan change a schedule of a source, and no other; replan only
	// if no daemon has moved it to another slot since it was read.
	update = dialect.SQL("scheduler.update", `
		UPDATE {prefix}schedule SET command = :command, stdin = :stdin, env = :env, update_time = {now}
		WHERE id = :id AND source = :source`)

	replan = dialect.SQL("scheduler.replan", `
		UPDATE {prefix}schedule
		SET command = :command, stdin = :stdin, env = :env, spec = :spec, time_zone = :zone, dst = :dst,
			due_at = {time :due}, next_exec = {time :due}, update_time = {now}, reason = '',
			state = CASE WHEN state = 'failed' THEN 'active' ELSE state END
		WHERE id = :id AND source = :source AND COALESCE({us due_at}, 0) = :seen`)

	removeOfSource = dialect.SQL("scheduler.remove-of-source", `
		DELETE FROM {prefix}schedule WHERE id IN (:ids) AND source = :source`)

	remove = dialect.SQL("scheduler.remove", `DELETE FROM {prefix}schedule WHERE name = :name`)

	history = dialect.SQL("scheduler.history", `
		SELECT id, schedule, {us due_at}, attempt, state, COALESCE({us due_to}, 0), slots, exec_by,
			COALESCE({us started_at}, 0), COALESCE({us finished_at}, 0), COALESCE(exit_code, -1), error, output
		FROM {prefix}run WHERE schedule = :schedule
		ORDER BY due_at DESC, attempt DESC LIMIT :limit`)

	historyOfAll = dialect.SQL("scheduler.history-of-all", `
		SELECT id, schedule, {us due_at}, attempt, state, COALESCE({us due_to}, 0), slots, exec_by,
			COALESCE({us started_at}, 0), COALESCE({us finished_at}, 0), COALESCE(exit_code, -1), error, output
		FROM {prefix}run ORDER BY id DESC LIMIT :limit`)
)
