package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Groups of jobs.
var (
	CreateGroup = sqlrun.SQL("queue.create-group", `
		INSERT INTO {prefix}job_group (id, name, state, callback, keep) VALUES (:group, :name, :state, :callback, :keep)`)

	// SealGroup allows a group to end. Only the first of several calls changes the row.
	SealGroup = sqlrun.SQL("queue.seal-group", `UPDATE {prefix}job_group SET state = 'sealed' WHERE id = :group AND state = 'open'`)

	// RipeGroups returns those of some groups that may be able to end, and RipeAny those of
	// all: a process may have died between ending the last job and ending its group.
	RipeGroups = sqlrun.SQL("queue.ripe-groups", `
		SELECT g.id FROM {records rows: group_id int} {join_by_key {prefix}job_group AS g} ON g.id = record.group_id
		WHERE g.state = 'sealed' AND `+nonePending+` ORDER BY g.id`)
	RipeAny = sqlrun.SQL("queue.ripe-any-groups", `
		SELECT g.id FROM {prefix}job_group AS g WHERE g.state = 'sealed' AND `+nonePending+` ORDER BY g.id LIMIT :limit`)

	// LockGroup finds no group to which somebody is adding jobs. EndGroup, which runs after it,
	// sees what they have added, and ends the group once.
	LockGroup = sqlrun.SQL("queue.lock-group", `SELECT callback FROM {prefix}job_group WHERE id = :group AND state = 'sealed' {skip_locked}`)
	EndGroup  = sqlrun.SQL("queue.end-group", `
		UPDATE {prefix}job_group SET state = 'done', ended_at = {now}, purge_at = CASE WHEN keep < 0 THEN NULL ELSE {now + keep} END
		WHERE id = :group AND state = 'sealed' AND NOT EXISTS (SELECT 1 FROM {prefix}job_member AS m WHERE m.group_id = :group AND m.state = 'pending')`)

	// AccuseGroup runs in the transaction that ends a group, and records why the group has no
	// callback.
	AccuseGroup = sqlrun.SQL("queue.accuse-group", `UPDATE {prefix}job_group SET error = :error WHERE id = :group`)

	// DropGroup ends a group without its callback, and marks it for removal.
	DropGroup = sqlrun.SQL("queue.drop-group", `
		UPDATE {prefix}job_group SET state = 'done', ended_at = COALESCE(ended_at, {now}), purge_at = {now} WHERE id = :group`)

	GetGroup = sqlrun.SQL("queue.get-group", `SELECT `+groupColumns+` FROM {prefix}job_group WHERE id = :group`)

	ListGroups = sqlrun.SQL("queue.list-groups", `
		SELECT `+groupColumns+` FROM {prefix}job_group WHERE state = :state AND id > :after ORDER BY id LIMIT :limit`)

	CountMembers = sqlrun.SQL("queue.count-members", `
		SELECT state, COUNT(*) FROM {prefix}job_member WHERE group_id = :group GROUP BY state`)

	ListMembers = sqlrun.SQL("queue.list-members", `
		SELECT m.job, COALESCE(q.name, ''), m.kind, m.state, m.result, m.error
		FROM {prefix}job_member AS m LEFT JOIN {prefix}queue AS q ON q.queue_id = m.queue_id
		WHERE m.group_id = :group AND m.job > :after ORDER BY m.job LIMIT :limit`)

	// WeighMembers returns the sizes of the members' results.
	WeighMembers = sqlrun.PerDialect("queue.weigh-members", func(d *sqlrun.Dialect) string {
		return `SELECT COALESCE(` + d.JSONBytes("result") +
			`, 0) FROM {prefix}job_member WHERE group_id = :group AND job > :after ORDER BY job LIMIT :limit`
	})

	// OldGroups finds groups to be removed. Their members are removed first, some at a time,
	// and then the groups: if a process dies in between, the next one continues.
	OldGroups = sqlrun.SQL("queue.old-groups", `
		SELECT id FROM {prefix}job_group WHERE purge_at <= {now} ORDER BY purge_at LIMIT :limit`)
	SomeMembers = sqlrun.SQL("queue.some-members", `
		SELECT job FROM {prefix}job_member WHERE group_id = :group ORDER BY job LIMIT :limit`)
	PurgeMembers = sqlrun.DeleteFree("queue.purge-members", "{prefix}job_member", []string{"group_id", "job"}, `group_id = :group AND {in job :ids}`)
	PurgeGroup   = sqlrun.DeleteFree("queue.purge-group", "{prefix}job_group", []string{"id"}, `id = :group AND purge_at <= {now}`)
)

const nonePending = `NOT EXISTS (SELECT 1 FROM {prefix}job_member AS m WHERE m.group_id = g.id AND m.state = 'pending')`

const groupColumns = `id, name, state, COALESCE(callback, ''), keep, error, {us created_at}, COALESCE({us ended_at}, 0)`
