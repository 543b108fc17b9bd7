package httpapi

import "github.com/dbcron/dbcron/dialect"

// All SQL of this package. A token is one row, and each statement finds one by a key, or
// reads all, of which there are few.
var (
	// createToken fails for a name that is there.
	createToken = dialect.SQL("httpapi.create-token", `
		INSERT INTO {prefix}token (name, hash, scopes, created_at, expires_at) VALUES (:name, :hash, :scopes, {now}, CASE WHEN {int :lasts} > 0 THEN {now + :lasts} END)`)

	// reuseToken makes a token of a name whose token was revoked: of two that do so at once
	// the second finds that it is not revoked any more.
	reuseToken = dialect.SQL("httpapi.reuse-token", `
		UPDATE {prefix}token SET hash = :hash, old_hash = NULL, old_until = NULL, scopes = :scopes, created_at = {now},
			expires_at = CASE WHEN {int :lasts} > 0 THEN {now + :lasts} END, revoked_at = NULL, last_used_at = NULL
		WHERE name = :name AND revoked_at IS NOT NULL`)

	// rotateToken is for a token that is good, and, if the secret before is to stay good for a
	// while, for one that has no other such secret. It reads hash before it writes it, which
	// MySQL does in the order of the text.
	rotateToken = dialect.SQL("httpapi.rotate-token", `
		UPDATE {prefix}token SET old_hash = CASE WHEN {int :grace} > 0 THEN hash END, old_until = CASE WHEN {int :grace} > 0 THEN {now + :grace} END, hash = :hash
		WHERE name = :name AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now})
			AND ({int :grace} = 0 OR old_until IS NULL OR old_until <= {now})`)

	// findToken tells by the database's clock whether a token is good, by its secret or the
	// one before, and whether it is time to note that it is used.
	findToken = dialect.SQL("httpapi.find-token", `
		SELECT name, hash, scopes, CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now}) THEN 1 ELSE 0 END,
			CASE WHEN last_used_at > {now + :since} THEN 0 ELSE 1 END
		FROM {prefix}token WHERE hash = :hash
		UNION ALL
		SELECT name, old_hash, scopes, CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now}) AND old_until > {now} THEN 1 ELSE 0 END,
			CASE WHEN last_used_at > {now + :since} THEN 0 ELSE 1 END
		FROM {prefix}token WHERE old_hash = :hash`)

	// touchToken notes that a token was used: of several processes that do so at once one
	// finds that it is time.
	touchToken = dialect.SQL("httpapi.touch-token", `
		UPDATE {prefix}token SET last_used_at = {now}
		WHERE name = :name AND (last_used_at IS NULL OR last_used_at <= {now + :since})`)

	anyToken = dialect.SQL("httpapi.any-token", `SELECT CASE WHEN EXISTS (SELECT 1 FROM {prefix}token) THEN 1 ELSE 0 END`)

	listTokens = dialect.SQL("httpapi.list-tokens", `
		SELECT name, scopes, {us created_at}, COALESCE({us expires_at}, 0), COALESCE({us revoked_at}, 0), COALESCE({us last_used_at}, 0),
			COALESCE(CASE WHEN old_until > {now} THEN {us old_until} END, 0), CASE WHEN expires_at <= {now} THEN 1 ELSE 0 END
		FROM {prefix}token ORDER BY name`)

	// revokeToken keeps the time of the first who revoked it.
	revokeToken = dialect.SQL("httpapi.revoke-token", `UPDATE {prefix}token SET revoked_at = {now} WHERE name = :name AND revoked_at IS NULL`)

	// removeTokens takes all that are committed. One that is made at the same time may stay:
	// then the API still needs a token, which is the safe side.
	removeTokens = dialect.SQL("httpapi.remove-tokens", `DELETE FROM {prefix}token`)

	namedToken = dialect.SQL("httpapi.named-token", `SELECT COUNT(*) FROM {prefix}token WHERE name = :name`)

	// countSchedules reads them all, which are few; due are those that a daemon should run by
	// now, and late those that it should have run a while ago.
	countSchedules = dialect.SQL("httpapi.count-schedules", `
		SELECT state, COUNT(*), SUM(CASE WHEN state = 'active' AND next_exec <= {now} THEN 1 ELSE 0 END),
			SUM(CASE WHEN state = 'active' AND next_exec <= {now + :since} THEN 1 ELSE 0 END)
		FROM {prefix}schedule GROUP BY state`)

	// countRuns counts those that have not ended, by the index of each lane.
	countRuns = dialect.SQL("httpapi.count-runs", `
		SELECT r.state, COUNT(*) FROM (SELECT DISTINCT lane FROM {prefix}schedule) AS l
		JOIN {prefix}run AS r ON r.lane = l.lane AND r.next_exec > {time 0} AND r.next_exec < {time 253402300799000000}
		GROUP BY r.state`)

	// firstSchedules reads the first schedules by name.
	firstSchedules = dialect.SQL("httpapi.first-schedules", `
		SELECT name, state, jitter, COALESCE({us due_at}, 0) FROM {prefix}schedule ORDER BY name LIMIT :limit`)

	// lastRuns reads the newest runs of some schedules that have ended: of each as many as the
	// limit, along the unique key.
	lastRuns = dialect.SQL("httpapi.last-runs", `
		{union rows: SELECT * FROM (SELECT schedule, {us due_at} AS due, attempt, state, COALESCE({us started_at}, 0) AS began, COALESCE({us finished_at}, 0) AS ended
			FROM {prefix}run WHERE schedule = :name ORDER BY due_at DESC, attempt DESC LIMIT :limit) AS one}`)

	// runningOf counts the runs of some schedules that are under way.
	runningOf = dialect.SQL("httpapi.running-of", `
		SELECT schedule, COUNT(*) FROM {prefix}run
		WHERE schedule IN (:names) AND next_exec > {time 0} AND next_exec < {time 253402300799000000} AND state = 'running' GROUP BY schedule`)

	// countNodes reads all processes, which are few.
	countNodes = dialect.SQL("httpapi.count-nodes", `
		SELECT version, SUM(CASE WHEN state = 'live' AND expire_at > {now} THEN 1 ELSE 0 END),
			SUM(CASE WHEN state = 'live' AND expire_at > {now} THEN 0 ELSE 1 END)
		FROM {prefix}node WHERE state <> 'gone' GROUP BY version ORDER BY version LIMIT :limit`)

	// countLocks looks at so many locks at the most.
	countLocks = dialect.SQL("httpapi.count-locks", `
		SELECT COUNT(*) FROM (SELECT state, expire_at FROM {prefix}lock LIMIT :limit) AS l
		WHERE state IN ('LOCK', 'EXTEND') AND expire_at > {now}`)
)
