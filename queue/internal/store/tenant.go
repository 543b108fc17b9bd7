package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Limits of tenants. A permit of a tenant is a row that exists while a worker has it. All else that workers have to know of
// a tenant is in its row of queue_tenant, which is there when somebody has needed it. Each statement is about many tenants, and passes
// over rows that others have locked.
var (
	// TenantPermits lists the permits of some tenants, as Permits does.
	TenantPermits = sqlrun.SQL("queue.tenant-permits", `
		SELECT p.tenant, p.slot, p.state, p.lock_by, p.fence, CASE WHEN n.state = 'live' THEN 1 ELSE 0 END, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END
		FROM {records tenants: name text} {join_by_key {prefix}queue_permit AS p} ON p.queue_id = :queue AND p.kind = '' AND p.tenant = record.name
		LEFT JOIN {prefix}node AS n ON n.name = p.lock_by ORDER BY p.tenant, p.slot`)

	// WaitingTenants says of which tenants there are rows, and who waits for a permit of theirs.
	WaitingTenants = sqlrun.SQL("queue.waiting-tenants", `
		SELECT t.tenant, CASE WHEN `+waits("t.")+` THEN t.waiting_by ELSE '' END
		FROM {records tenants: name text} {join_by_key {prefix}queue_tenant AS t} ON t.queue_id = :queue AND t.tenant = record.name`)

	// TakeTenantPermits takes those of some permits that nobody has. TakenTenantPermits says which these are: those that carry the fence that
	// the taker has made up.
	TakeTenantPermits = sqlrun.SQL("queue.take-tenant-permits", `
		INSERT INTO {prefix}queue_permit (queue_id, kind, tenant, slot, state, lock_by, lock_at, fence)
		VALUES {values rows: (:queue, '', :name, :slot, 'LEASED', :node, {now}, :fence)} {ignore_duplicate slot}`)

	TakenTenantPermits = sqlrun.SQL("queue.taken-tenant-permits", `
		SELECT p.tenant, p.slot FROM {records tenants: name text} {join_by_key {prefix}queue_permit AS p}
			ON p.queue_id = :queue AND p.kind = '' AND p.tenant = record.name WHERE p.lock_by = :node AND p.fence = :fence`)

	// ReturnTenantPermits ends permits: those of this worker, and those of processes that are not live, which is for good.
	ReturnTenantPermits = sqlrun.PerDialect("queue.return-tenant-permits", func(d *sqlrun.Dialect) string {
		return d.DeleteFrom("{prefix}queue_permit", bySlot, `
			SELECT p.queue_id, p.kind, p.tenant, p.slot FROM {records rows: name text, nth int, held int, who text} {join_by_key {prefix}queue_permit AS p}
			ON p.queue_id = :queue AND p.kind = '' AND p.tenant = record.name AND p.slot = record.nth
			WHERE p.fence = record.held AND p.lock_by = record.who LIMIT 10000 {skip_locked}`)
	})

	// OwnTenantPermits lists what a worker has of a queue, whether it knows of that or not.
	OwnTenantPermits = sqlrun.SQL("queue.own-tenant-permits", `
		SELECT tenant, slot, fence FROM {prefix}queue_permit WHERE queue_id = :queue AND kind = '' AND tenant > '' AND lock_by = :node`)

	// MakeTenants makes rows that nobody has.
	MakeTenants = sqlrun.SQL("queue.make-tenants", `
		INSERT INTO {prefix}queue_tenant (queue_id, tenant) VALUES {values rows: (:queue, :name)} {ignore_duplicate tenant}`)

	// WaitForTenants records that a worker waits for permits of some tenants, as WaitForPermit does.
	WaitForTenants = sqlrun.PerDialect("queue.wait-for-tenants", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}queue_tenant", byTenant, `waiting_by = :node, waiting_until = {now + :lasts}`, "", `
			SELECT t.queue_id, t.tenant FROM {records tenants: name text} {join_by_key {prefix}queue_tenant AS t} ON t.queue_id = :queue AND t.tenant = record.name
			WHERE `+mayWait("t.")+` LIMIT 10000 {skip_locked}`)
	})

	// LockTenants locks the rows of some tenants, and says until when their rates are used up, as LockLimit does. SetDrawnTenants runs with
	// them locked. The time from which on a row says nothing more is that of a full burst.
	LockTenants = sqlrun.SQL("queue.lock-tenants", `
		SELECT t.tenant, {us {now}}, COALESCE({us t.drawn_at}, 0), t.drawn_ahead FROM {records tenants: name text} {join_by_key {prefix}queue_tenant AS t}
		ON t.queue_id = :queue AND t.tenant = record.name {skip_locked}`)

	SetDrawnTenants = sqlrun.PerDialect("queue.set-drawn-tenants", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}queue_tenant", byTenant, `drawn_at = picked.new_drawn, drawn_ahead = picked.new_ahead, full_at = picked.new_full`, "",
			`SELECT queue AS queue_id, name AS tenant, {time drawn} AS new_drawn, ahead AS new_ahead, {time filled} AS new_full
				FROM {records rows: queue int, name text, drawn int, ahead int, filled int}`)
	})

	// SweepTenants removes rows that say nothing any more. Who needs one makes it anew.
	SweepTenants = sqlrun.DeleteFree("queue.sweep-tenants", "{prefix}queue_tenant", byTenant,
		`insert_time < {now + :since} AND (full_at IS NULL OR full_at < {now}) AND (waiting_until IS NULL OR NOT (`+waits("")+`))`)
)

// byTenant is the key of tenants.
var byTenant = []string{"queue_id", "tenant"}
