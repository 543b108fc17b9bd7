package push

import "github.com/dbcron/dbcron/internal/sqlrun"

// This file holds the SQL of the package. An endpoint is one row, which is changed with its queue's row
// locked. Dispatchers read all endpoints about once a second.
var (
	lockQueue = sqlrun.SQL("push.lock-queue", `SELECT queue_id, state FROM {prefix}queue WHERE name = :name {locked}`)

	getEndpoint = sqlrun.SQL("push.get", `SELECT `+columns+
		` FROM {prefix}endpoint AS e JOIN {prefix}queue AS q ON q.queue_id = e.queue_id WHERE q.name = :name`)

	listEndpoints = sqlrun.SQL("push.list", `
		SELECT `+columns+` FROM {prefix}endpoint AS e JOIN {prefix}queue AS q ON q.queue_id = e.queue_id
		WHERE q.name > :after AND q.state <> 'deleted' ORDER BY q.name LIMIT :limit`)

	insertEndpoint = sqlrun.SQL("push.insert", `
		INSERT INTO {prefix}endpoint (queue_id, url, format, concurrency, batch, timeout, secret, old_secret)
		VALUES (:queue, :url, :format, :concurrency, :batch, :timeout, :secret, :old_secret)`)

	updateEndpoint = sqlrun.SQL("push.update", `
		UPDATE {prefix}endpoint SET url = :url, format = :format, concurrency = :concurrency, batch = :batch, timeout = :timeout,
			secret = :secret, old_secret = :old_secret, update_time = {now}
		WHERE queue_id = :queue`)

	// lockAnswers locks the row that updateAnswers then writes. insertAnswers does nothing if another
	// process has inserted the row.
	lockAnswers = sqlrun.SQL("push.lock-answers", `SELECT answers FROM {prefix}endpoint_answers WHERE queue_id = :queue {locked}`)

	updateAnswers = sqlrun.SQL("push.update-answers",
		`UPDATE {prefix}endpoint_answers SET answers = :answers, update_time = {now} WHERE queue_id = :queue`)

	insertAnswers = sqlrun.SQL("push.insert-answers",
		`INSERT INTO {prefix}endpoint_answers (queue_id, answers) VALUES (:queue, :answers) {ignore_duplicate queue_id}`)

	getAnswers = sqlrun.SQL("push.get-answers", `
		SELECT q.name, a.answers FROM {prefix}endpoint_answers AS a JOIN {prefix}queue AS q ON q.queue_id = a.queue_id WHERE q.name = :name`)

	// listAnswers reads no table with secrets.
	listAnswers = sqlrun.SQL("push.list-answers", `
		SELECT q.name, a.answers FROM {prefix}endpoint_answers AS a JOIN {prefix}queue AS q ON q.queue_id = a.queue_id
		WHERE a.update_time >= {now + :since} AND q.state <> 'deleted' ORDER BY q.name LIMIT :limit`)

	// deleteAnswers accompanies deleteEndpoint. A request that is still running may insert the row again,
	// which is harmless: the answers carry their times.
	deleteAnswers = sqlrun.SQL("push.delete-answers",
		`DELETE FROM {prefix}endpoint_answers WHERE queue_id = (SELECT queue_id FROM {prefix}queue WHERE name = :name)`)

	deleteEndpoint = sqlrun.SQL("push.delete",
		`DELETE FROM {prefix}endpoint WHERE queue_id = (SELECT queue_id FROM {prefix}queue WHERE name = :name)`)
)

const columns = `q.queue_id, q.name, q.state, q.timeout, q.max_timeout, q.origin_share, q.max_attempts, e.url, e.format, e.concurrency, e.batch, e.timeout, e.secret, e.old_secret`
