package httpapi

import "github.com/dbcron/dbcron/internal/sqlrun"

// This file holds the SQL of the package. A token is one row, and each statement finds one by a key or
// reads all of them, which are few.
var (
	// createToken fails if the name is taken.
	createToken = sqlrun.SQL("httpapi.create-token", `
		INSERT INTO {prefix}token (name, hash, scopes, created_at, expires_at) VALUES (:name, :hash, :scopes, {now}, CASE WHEN {int :lasts} > 0 THEN {now + :lasts} END)`)

	// reuseToken makes a token of a name whose token was revoked. If two do so at once, the second
	// finds that the token is no longer revoked.
	reuseToken = sqlrun.SQL("httpapi.reuse-token", `
		UPDATE {prefix}token SET hash = :hash, old_hash = NULL, old_until = NULL, scopes = :scopes, created_at = {now},
			expires_at = CASE WHEN {int :lasts} > 0 THEN {now + :lasts} END, revoked_at = NULL, last_used_at = NULL
		WHERE name = :name AND revoked_at IS NOT NULL`)

	// rotateToken requires a valid token. If the previous secret is to stay valid for a while, it also
	// requires that no earlier one is still valid. It reads hash before it writes it; MySQL assigns in
	// the order of the text.
	rotateToken = sqlrun.SQL("httpapi.rotate-token", `
		UPDATE {prefix}token SET old_hash = CASE WHEN {int :grace} > 0 THEN hash END, old_until = CASE WHEN {int :grace} > 0 THEN {now + :grace} END, hash = :hash
		WHERE name = :name AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now})
			AND ({int :grace} = 0 OR old_until IS NULL OR old_until <= {now})`)

	// findToken returns, by the database's clock, whether a token is valid by its current or previous
	// secret, and whether its use must be recorded.
	findToken = sqlrun.SQL("httpapi.find-token", `
		SELECT name, hash, scopes, CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now}) THEN 1 ELSE 0 END,
			CASE WHEN last_used_at > {now + :since} THEN 0 ELSE 1 END
		FROM {prefix}token WHERE hash = :hash
		UNION ALL
		SELECT name, old_hash, scopes, CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now}) AND old_until > {now} THEN 1 ELSE 0 END,
			CASE WHEN last_used_at > {now + :since} THEN 0 ELSE 1 END
		FROM {prefix}token WHERE old_hash = :hash`)

	// touchToken records a token's use. Of several concurrent processes, one finds that it is due.
	touchToken = sqlrun.SQL("httpapi.touch-token", `
		UPDATE {prefix}token SET last_used_at = {now}
		WHERE name = :name AND (last_used_at IS NULL OR last_used_at <= {now + :since})`)

	anyToken = sqlrun.SQL("httpapi.any-token", `SELECT CASE WHEN EXISTS (SELECT 1 FROM {prefix}token) THEN 1 ELSE 0 END`)

	listTokens = sqlrun.SQL("httpapi.list-tokens", `
		SELECT name, scopes, `+sqlrun.Seen("created_at")+`,
			`+sqlrun.Seen("expires_at")+`,
			`+sqlrun.Seen("revoked_at")+`,
			`+sqlrun.Seen("last_used_at")+`,
			CASE WHEN old_until > {now} THEN `+sqlrun.Seen("old_until")+` ELSE 0 END, CASE WHEN expires_at <= {now} THEN 1 ELSE 0 END
		FROM {prefix}token ORDER BY name`)

	// revokeToken keeps the time of the first revocation.
	revokeToken = sqlrun.SQL("httpapi.revoke-token", `UPDATE {prefix}token SET revoked_at = {now} WHERE name = :name AND revoked_at IS NULL`)

	// removeTokens deletes all committed tokens. One made at the same time may stay; the API then still
	// needs a token, which is the safe side.
	removeTokens = sqlrun.SQL("httpapi.remove-tokens", `DELETE FROM {prefix}token`)

	namedToken = sqlrun.SQL("httpapi.named-token", `SELECT COUNT(*) FROM {prefix}token WHERE name = :name`)

	readSecret = sqlrun.SQL("httpapi.read-secret", `SELECT secret FROM {prefix}secret WHERE name = :name`)

	// makeSecret fails if another process has made it. Nothing changes it afterwards, so all read the same one.
	makeSecret = sqlrun.SQL("httpapi.make-secret", `INSERT INTO {prefix}secret (name, secret, created_at) VALUES (:name, :secret, {now})`)

	// countSchedules reads all schedules, which are few. due counts those that a daemon should run by
	// now, late those that it should have run a while ago.
	countSchedules = sqlrun.SQL("httpapi.count-schedules", `
		SELECT state, COUNT(*), SUM(CASE WHEN state = 'active' AND next_exec <= {now} THEN 1 ELSE 0 END),
			SUM(CASE WHEN state = 'active' AND next_exec <= {now + :since} THEN 1 ELSE 0 END)
		FROM {prefix}schedule GROUP BY state`)

	// countRuns counts open runs, by the index of each lane.
	countRuns = sqlrun.SQL("httpapi.count-runs", `
		SELECT r.state, COUNT(*) FROM (SELECT lane FROM {prefix}schedule UNION SELECT lane FROM {prefix}schedule_boot) AS l
		JOIN {prefix}run AS r ON r.lane = l.lane AND r.next_exec > {time 0} AND r.next_exec < {time 253402300799000000}
		GROUP BY r.state`)

	// firstSchedules reads the first schedules by name.
	firstSchedules = sqlrun.SQL("httpapi.first-schedules", `
		SELECT name, state, jitter, COALESCE({us due_at}, 0) FROM {prefix}schedule ORDER BY name LIMIT :limit`)

	// lastRuns reads the newest ended runs of some schedules, up to limit of each, along the unique
	// key.
	lastRuns = sqlrun.SQL("httpapi.last-runs", `
		{union rows: SELECT * FROM (SELECT schedule, {us due_at} AS due, attempt, state, COALESCE({us started_at}, 0) AS began, COALESCE({us finished_at}, 0) AS ended
			FROM {prefix}run WHERE schedule = :name ORDER BY due_at DESC, attempt DESC LIMIT :limit) AS one}`)

	// runningOf counts the running runs of some schedules.
	runningOf = sqlrun.SQL("httpapi.running-of", `
		SELECT schedule, COUNT(*) FROM {prefix}run
		WHERE schedule IN (:names) AND next_exec > {time 0} AND next_exec < {time 253402300799000000} AND state = 'running' GROUP BY schedule`)

	// countNodes reads all processes, which are few.
	countNodes = sqlrun.SQL("httpapi.count-nodes", `
		SELECT version, SUM(CASE WHEN state = 'live' AND expire_at > {now} THEN 1 ELSE 0 END),
			SUM(CASE WHEN state = 'live' AND expire_at > {now} THEN 0 ELSE 1 END)
		FROM {prefix}node WHERE state <> 'gone' GROUP BY version ORDER BY version LIMIT :limit`)

	// countLocks counts up to a limit.
	countLocks = sqlrun.SQL("httpapi.count-locks", `
		SELECT COUNT(*) FROM (SELECT state, expire_at FROM {prefix}lock LIMIT :limit) AS l
		WHERE state IN ('LOCK', 'EXTEND') AND expire_at > {now}`)
)
