package store

import "github.com/dbcron/dbcron/dialect"

// Routes of kinds.
var (
	ListRoutes = dialect.SQL("queue.list-routes", `
		SELECT kind, queue FROM {prefix}route WHERE kind > :after ORDER BY kind LIMIT :limit`)

	// UpdateRoute and InsertRoute set a route: of several who insert one the others find
	// a duplicate, and update it.
	UpdateRoute = dialect.SQL("queue.update-route", `UPDATE {prefix}route SET queue = :name, update_time = {now} WHERE kind = :kind`)
	InsertRoute = dialect.SQL("queue.insert-route", `INSERT INTO {prefix}route (kind, queue) VALUES (:kind, :name)`)
	DeleteRoute = dialect.SQL("queue.delete-route", `DELETE FROM {prefix}route WHERE kind = :kind`)
)
