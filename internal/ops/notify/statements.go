package notify

import "github.com/dbcron/dbcron/internal/sqlrun"

// This file holds all SQL of the package.
//
// One daemon at a time gathers what is to be told, under the lock of the row ” of notice_target. So the
// count of a target's messages is right, and simultaneous failures share a message. The rows of notice are
// locked when they are read, so a failure recorded meanwhile waits, and comes after what was told.
//
// The server's clock may be set. What it said before must not keep anything from being told now: an instant
// that is ahead of the clock counts as long ago.
var (
	// glance reads whether something is to be told, whether there are messages, and whether it is time
	// to look again.
	glance = sqlrun.SQL("notify.glance", `
		SELECT (SELECT COUNT(*) FROM (SELECT name FROM {prefix}notice WHERE tell_at IS NOT NULL LIMIT 1) AS pending),
			(SELECT COUNT(*) FROM {prefix}queue WHERE name = :queue AND state <> 'deleted'),
			(SELECT COUNT(*) FROM {prefix}notice_target WHERE target = '' AND sent_at > {now + :ago} AND sent_at <= {now + :ahead})`)

	// openBook inserts the row that serializes gathering; the key decides who inserts it.
	openBook = sqlrun.SQL("notify.open-book", `
		INSERT INTO {prefix}notice_target (target, sent_at, hour_at, sent) VALUES ('', {time 0}, {time 0}, 0) {ignore_duplicate target}`)

	// takeLook lets one daemon look per period: the number of changed rows decides.
	takeLook = sqlrun.SQL("notify.take-look", `
		UPDATE {prefix}notice_target SET sent_at = {now}, sent = sent + 1
		WHERE target = '' AND (sent_at <= {now + :ago} OR sent_at > {now + :ahead})`)

	lockBook = sqlrun.SQL("notify.lock-book", `SELECT target FROM {prefix}notice_target WHERE target = '' {locked}`)

	// pending locks what is to be told. :defaults = 0 omits what has no targets of its own.
	pending = sqlrun.SQL("notify.pending", `
		SELECT subject, name, problem, detail, target, run_id, `+sqlrun.Seen("due_at")+`, times,
			`+sqlrun.Seen("begun_at")+`,
			`+sqlrun.Seen("last_at")+`,
			`+sqlrun.Seen("tell_at")+`,
			`+sqlrun.Seen("told_at")+`,
			`+sqlrun.Seen("well_at")+`, told_to, {us {now}}
		FROM {prefix}notice WHERE tell_at IS NOT NULL AND ({int :defaults} = 1 OR target <> '' OR told_to <> '')
		ORDER BY tell_at LIMIT :limit {locked}`)

	sentTo = sqlrun.SQL("notify.sent-to", `
		SELECT target, {us sent_at}, {us hour_at}, sent FROM {prefix}notice_target WHERE target IN (:targets)`)

	// webhooks lists the URLs that messages were made for. Rows are not deleted.
	webhooks = sqlrun.SQL("notify.webhooks", `SELECT target FROM {prefix}notice_target WHERE target LIKE 'http%'`)

	// count and countFirst: only the daemon that has locked the book writes there.
	count = sqlrun.SQL("notify.count", `
		UPDATE {prefix}notice_target SET sent_at = {now}, hour_at = {time :hour}, sent = :sent WHERE target = :target`)

	countFirst = sqlrun.SQL("notify.count-first", `
		INSERT INTO {prefix}notice_target (target, sent_at, hour_at, sent) VALUES (:target, {now}, {now}, 1)`)

	// told and over change rows that the transaction has locked.
	told = sqlrun.SQL("notify.told", `
		UPDATE {prefix}notice SET told_at = {now}, told_to = :to, tell_at = NULL WHERE subject = :subject AND name IN (:names)`)

	over = sqlrun.SQL("notify.over", `DELETE FROM {prefix}notice WHERE subject = :subject AND name IN (:names)`)

	// recovered finds schedules with a run that ended well after the newest failure. A later slot, or a late one, that was
	// claimed after the run that failed is one, whatever the clock said when it ended: the slots of a schedule are
	// claimed in order.
	recovered = sqlrun.SQL("notify.recovered", `
		SELECT n.name, n.times FROM {prefix}notice AS n
		WHERE n.subject = 'schedule' AND n.well_at IS NULL AND EXISTS (
			SELECT 1 FROM {prefix}run AS r WHERE r.schedule = n.name AND r.due_at >= n.due_at AND r.state = 'ok'
				AND (r.finished_at >= n.last_at AND r.id <> n.run_id
					OR r.cause = 'slot' AND r.id > n.run_id AND (r.due_at > n.due_at OR n.problem = 'late')))
		LIMIT :limit`)

	// well records a recovery, unless there was another failure since.
	well = sqlrun.SQL("notify.well", `
		UPDATE {prefix}notice SET well_at = {now}, tell_at = {now}
		WHERE subject = :subject AND name = :name AND times = :times AND well_at IS NULL`)

	// forget deletes troubles that nobody was told about for a day, and told troubles of deleted
	// schedules.
	forget = sqlrun.SQL("notify.forget", `
		DELETE FROM {prefix}notice WHERE subject = 'schedule' AND (
			told_at IS NULL AND well_at IS NOT NULL AND last_at < {now + :day}
			OR told_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {prefix}schedule AS s WHERE s.name = {prefix}notice.name))`)

	// knownStates reads the known troubles of what is looked at.
	knownStates = sqlrun.SQL("notify.known-states", `
		SELECT subject, name, times, target, well_at IS NOT NULL, told_at IS NOT NULL FROM {prefix}notice WHERE subject IN ('dead', 'behind', 'clock')`)

	// noteState and worse: first the key decides, and then the number.
	noteState = sqlrun.SQL("notify.note-state", `
		INSERT INTO {prefix}notice (subject, name, problem, detail, target, run_id, times, begun_at, last_at, tell_at)
		VALUES (:subject, :name, :subject, :detail, :target, 0, :times, {now}, {now}, {now}) {ignore_duplicate name}`)

	worse = sqlrun.SQL("notify.worse", `
		UPDATE {prefix}notice SET times = :times, detail = :detail, target = :target, last_at = {now}, well_at = NULL,
			tell_at = CASE WHEN {int :tell} = 1 THEN {now} ELSE tell_at END
		WHERE subject = :subject AND name = :name AND times = :was`)

	// unwanted deletes a trouble about which nobody is to be told any more, unless somebody was told meanwhile, who
	// will be told of the recovery. A daemon that is telling it has locked the row.
	unwanted = sqlrun.SQL("notify.unwanted", `
		DELETE FROM {prefix}notice WHERE subject = :subject AND name = :name AND told_at IS NULL`)
)
