package store

import (
	"context"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A MemberState is the state of a job of a group.
type MemberState string

// States of the jobs of groups.
const (
	MemberPending   MemberState = "pending"
	MemberDone      MemberState = "done"
	MemberDead      MemberState = "dead"
	MemberCancelled MemberState = "cancelled"
)

// The members of groups.
var (
	// EnterGroup locks a group to which jobs are added, so that it cannot end before they are
	// there.
	EnterGroup = sqlrun.SQL("queue.enter-group", `SELECT state FROM {prefix}job_group WHERE id = :group {share_locked}`)

	AddMembers = sqlrun.PerDialect("queue.add-members", func(d *sqlrun.Dialect) string {
		return insertInto(d, "job_member", "group_id=group_id int, job=job int, queue_id=queue int, kind=name text")
	})

	// FinishMembers runs in the transaction that has ended the jobs. Whoever deletes a job's
	// row ends the job, so nobody else records its outcome.
	FinishMembers = sqlrun.PerDialect("queue.finish-members", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}job_member", []string{"group_id", "job"},
			`state = picked.became, result = picked.made, error = picked.why`, "",
			`SELECT group_id, job, became, made, why FROM {records rows: group_id int, job int, became text, made text, why text}`)
	})
)

// Finish records the outcomes of jobs of groups.
func Finish(ctx context.Context, tx *sqlrun.Session, members []Ended) error {
	rows := make([]sqlrun.Args, len(members))
	for i := range members {
		e := &members[i]
		rows[i] = sqlrun.Args{"group_id": e.Group, "job": e.ID, "became": string(e.State), "made": nil, "why": e.Why}
		if e.Result != nil {
			rows[i]["made"] = string(e.Result)
		}
	}
	_, err := ExecParts(ctx, tx, FinishMembers, sqlrun.Args{}, rows)
	return err
}
