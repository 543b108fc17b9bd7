package store

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Routes of kinds.
var (
	ListRoutes = sqlrun.SQL("queue.list-routes", `
		SELECT kind, queue FROM {prefix}route WHERE kind > :after ORDER BY kind LIMIT :limit`)

	// UpdateRoute and InsertRoute set a route: if several insert one at once, the losers find a
	// duplicate and update it.
	UpdateRoute = sqlrun.SQL("queue.update-route", `UPDATE {prefix}route SET queue = :name, update_time = {now} WHERE kind = :kind`)
	InsertRoute = sqlrun.SQL("queue.insert-route", `INSERT INTO {prefix}route (kind, queue) VALUES (:kind, :name)`)
	DeleteRoute = sqlrun.SQL("queue.delete-route", `DELETE FROM {prefix}route WHERE kind = :kind`)
)

// RestOfKinds is the kind of the route for all kinds without a route of their own.
const RestOfKinds = "*"

// A Route sends the jobs of a kind that name no queue to a queue.
type Route struct {
	Kind  string // or RestOfKinds
	Queue string
	Wrong string
}

// ReadRoutes lists routes by kind, those after a given kind.
func ReadRoutes(ctx context.Context, on *sqlrun.Session, after string, limit int) ([]Route, error) {
	return sqlrun.Select(ctx, on, ListRoutes, sqlrun.Args{"after": after, "limit": limit}, func(rows *sql.Rows) (r Route, err error) {
		var row sqlrun.Reading
		err = rows.Scan(row.Into("kind", &r.Kind), row.Into("queue", &r.Queue))
		if err := sqlrun.CheckName(r.Kind); err != nil {
			row.Note("kind", err.Error())
		}
		if err := cmp.Or(sqlrun.CheckName(r.Queue), jobfield.CheckTarget(r.Queue)); err != nil {
			row.Note("queue", err.Error())
		}
		r.Wrong = row.Wrong
		return r, err
	})
}

// RoutesByKind reads all routes, and returns the queues by kind.
func RoutesByKind(ctx context.Context, on *sqlrun.Session) (map[string]string, error) {
	all := map[string]string{}
	for after := ""; ; {
		part, err := ReadRoutes(ctx, on, after, Chunk)
		if err != nil {
			return nil, err
		}
		for _, one := range part {
			all[one.Kind], after = one.Queue, one.Kind
		}
		if len(part) < Chunk {
			return all, nil
		}
	}
}

// RouteOf returns the queue for jobs of a kind by these routes.
func RouteOf(all map[string]string, kind string) string {
	for _, kind := range []string{kind, RestOfKinds} {
		if queue, is := all[kind]; is {
			return queue
		}
	}
	return DefaultQueue
}
