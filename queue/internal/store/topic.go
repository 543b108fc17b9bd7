package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Subscriptions to topics.
var (
	InsertSubscription = sqlrun.SQL("queue.subscribe", `
		INSERT INTO {prefix}topic_queue (topic, queue) VALUES (:topic, :subscriber) {ignore_duplicate queue}`)

	DeleteSubscription = sqlrun.SQL("queue.unsubscribe", `DELETE FROM {prefix}topic_queue WHERE topic = :topic AND queue = :subscriber`)

	// ListSubscribed runs in the transaction that publishes: each publication goes to the
	// queues that exist and are subscribed at one moment.
	ListSubscribed = sqlrun.SQL("queue.subscribed", `
		SELECT queue FROM {prefix}topic_queue AS t
		WHERE topic = :topic AND NOT EXISTS (SELECT 1 FROM {prefix}queue AS q WHERE q.name = t.queue AND q.state = 'deleted') ORDER BY queue`)

	ListSubscriptions = sqlrun.SQL("queue.subscriptions", `
		SELECT topic, queue FROM {prefix}topic_queue
		WHERE topic > :topic OR topic = :topic AND queue > :subscriber ORDER BY topic, queue LIMIT :limit`)
)
