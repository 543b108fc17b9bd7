package store

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Shares of tenants in fair queues.
var (
	// SharesOf lists the shares of some queues.
	SharesOf = sqlrun.SQL("queue.shares", `
		SELECT queue_id, tenant, weight FROM {prefix}queue_share WHERE {in queue_id :queues} ORDER BY queue_id, tenant`)

	ListShares = sqlrun.SQL("queue.list-shares", `
		SELECT s.tenant, s.weight FROM {prefix}queue_share AS s JOIN {prefix}queue AS q ON q.queue_id = s.queue_id
		WHERE q.name = :name AND s.tenant > :after ORDER BY s.tenant LIMIT :limit`)

	// UpdateShare and InsertShare run with the queue locked.
	UpdateShare = sqlrun.SQL("queue.update-share", `
		UPDATE {prefix}queue_share SET weight = :weight, update_time = {now} WHERE queue_id = :queue AND tenant = :tenant`)
	InsertShare = sqlrun.SQL("queue.insert-share", `
		INSERT INTO {prefix}queue_share (queue_id, tenant, weight) VALUES (:queue, :tenant, :weight)`)
	DeleteShare = sqlrun.SQL("queue.delete-share", `DELETE FROM {prefix}queue_share WHERE queue_id = :queue AND tenant = :tenant`)
)

// MaxWeight is the greatest share of a tenant.
const MaxWeight = 1000

// A Share is how many turns a tenant of a queue has while one without a share has one.
type Share struct {
	Tenant string
	Weight int
}

// ReadShares reads the shares of the tenants of some queues. What was written by hand is brought into bounds.
func ReadShares(ctx context.Context, on *sqlrun.Session, queues []int) (map[int]map[string]int, error) {
	all := map[int]map[string]int{}
	_, err := sqlrun.Select(ctx, on, SharesOf, sqlrun.Args{"queues": IDList(queues)}, func(rows *sql.Rows) (none struct{}, err error) {
		var queue int
		var s Share
		var row sqlrun.Reading
		if err = rows.Scan(append([]any{&queue}, s.Places(&row)...)...); err == nil {
			if all[queue] == nil {
				all[queue] = map[string]int{}
			}
			all[queue][s.Tenant] = min(max(s.Weight, 1), MaxWeight)
		}
		return none, err
	})
	return all, err
}

// Places are where the columns tenant and weight of a row go, which may have been written by hand.
func (s *Share) Places(row *sqlrun.Reading) []any {
	return []any{row.Into("tenant", &s.Tenant), row.Into("weight", &s.Weight)}
}
