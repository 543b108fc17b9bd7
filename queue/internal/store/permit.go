package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// The permits of queues and kinds. Those of tenants are in tenant.go.
var (
	Permits = sqlrun.SQL("queue.permits", `
		SELECT p.slot, p.state, p.lock_by, p.fence, CASE WHEN n.state = 'live' THEN 1 ELSE 0 END, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END
		FROM {prefix}queue_permit AS p LEFT JOIN {prefix}node AS n ON n.name = p.lock_by
		WHERE p.queue_id = :queue AND p.kind = :kind AND p.tenant = '' ORDER BY p.slot`)

	// CreatePermits creates the missing permits of a limit. Concurrent callers create the same
	// ones.
	CreatePermits = sqlrun.SQL("queue.create-permits", `
		INSERT INTO {prefix}queue_permit (queue_id, kind, slot) VALUES {values rows: (:queue, :kind, :slot)} {ignore_duplicate slot}`)

	// TakePermit leases a permit that is free, or whose holder is not live. It compares the
	// fence that the taker saw, so one of several takers wins.
	TakePermit = sqlrun.UpdateFree("queue.take-permit", "{prefix}queue_permit", bySlot,
		`state = 'LEASED', lock_by = :node, lock_at = {now}, fence = fence + 1`,
		`queue_id = :queue AND kind = :kind AND tenant = '' AND slot = :slot AND fence = :fence
			AND (state = 'FREE' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = lock_by AND n.state = 'live'))`)

	ReturnPermit = sqlrun.UpdateFree("queue.return-permit", "{prefix}queue_permit", bySlot, `state = 'FREE'`,
		`queue_id = :queue AND kind = :kind AND tenant = '' AND slot = :slot AND fence = :fence AND lock_by = :node`)

	// WaitForPermit records that a worker waits, unless one has recorded that a moment ago.
	// Only the time until that worker gets a permit depends on it.
	WaitForPermit = sqlrun.UpdateFree("queue.wait-for-permit", "{prefix}queue_limit", []string{"queue_id", "kind", "tenant"},
		`waiting_by = :node, waiting_until = {now + :lasts}`,
		`queue_id = :queue AND kind = :kind AND tenant = '' AND `+mayWait(""))

	// SweepPermits removes free permits that no limit has any more, and those of tenants whose workers have died.
	SweepPermits = sqlrun.DeleteFree("queue.sweep-permits", "{prefix}queue_permit", bySlot,
		`(state = 'FREE' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = lock_by AND n.state = 'live'))
			AND (tenant <> '' OR NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l
				WHERE l.queue_id = {prefix}queue_permit.queue_id AND l.kind = {prefix}queue_permit.kind AND l.tenant = ''))`)
)

// waits is the condition that a worker waits for a permit, which it says for two seconds. What is further off than a
// minute was written while
// the clock was wrong.
func waits(table string) string {
	return table + "waiting_until > {now} AND " + table + "waiting_until <= {now + 60000000}"
}

// mayWait is the condition that a worker may say that it waits: nobody has said so a moment ago.
func mayWait(table string) string {
	until := table + "waiting_until"
	return "(" + until + " IS NULL OR " + until + " < {now + :soon} OR " + until + " > {now + 60000000})"
}

// bySlot is the key of permits.
var bySlot = []string{"queue_id", "kind", "tenant", "slot"}
