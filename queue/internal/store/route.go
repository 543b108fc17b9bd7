package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Routes of kinds.
var (
	ListRoutes = sqlrun.SQL("queue.list-routes", `
		SELECT kind, queue FROM {prefix}route WHERE kind > :after ORDER BY kind LIMIT :limit`)

	// UpdateRoute and InsertRoute set a route: of several who insert one the others find
	// a duplicate, and update it.
	UpdateRoute = sqlrun.SQL("queue.update-route", `UPDATE {prefix}route SET queue = :name, update_time = {now} WHERE kind = :kind`)
	InsertRoute = sqlrun.SQL("queue.insert-route", `INSERT INTO {prefix}route (kind, queue) VALUES (:kind, :name)`)
	DeleteRoute = sqlrun.SQL("queue.delete-route", `DELETE FROM {prefix}route WHERE kind = :kind`)
)
