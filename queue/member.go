package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dbcron/dbcron/dialect"
)

// What stands in the table of the members of groups.

type memberState string

const (
	memberPending   memberState = "pending"
	memberDone      memberState = "done"
	memberDead      memberState = "dead"
	memberCancelled memberState = "cancelled"
)

var (
	// enterGroup locks a group that jobs are added to, so that it cannot end before they
	// are there.
	enterGroup = dialect.SQL("queue.enter-group", `SELECT state FROM {prefix}job_group WHERE id = :group {share_locked}`)

	addMembers = dialect.PerDialect("queue.add-members", func(d *dialect.Dialect) string {
		return insertInto(d, "job_member", "group_id=crew int, job=job int, queue_id=queue int, kind=name text")
	})

	// finishMembers runs in the transaction that has ended the jobs. Whoever deletes a
	// job's row ends it, so nobody else says what has become of it.
	finishMembers = dialect.PerDialect("queue.finish-members", func(d *dialect.Dialect) string {
		return d.UpdateFrom("{prefix}job_member", []string{"group_id", "job"},
			`state = picked.became, result = picked.made, error = picked.why`, "",
			`SELECT crew AS group_id, job, became, made, why FROM {records rows: crew int, job int, became text, made text, why text}`)
	})
)

// enter locks the groups that rows are added to, in the order of their ids.
func enter(ctx context.Context, tx *dialect.Session, rows []jobRow) error {
	groups := map[int64]bool{}
	for i := range rows {
		if rows[i].Group != 0 {
			groups[rows[i].Group] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		var state string
		switch err := tx.Get(ctx, enterGroup, dialect.Args{"group": id}, &state); {
		case errors.Is(err, sql.ErrNoRows):
			return noGroup(id)
		case err != nil:
			return err
		case state == GroupDone:
			return fmt.Errorf("%w: group %d has ended", ErrState, id)
		}
	}
	return nil
}

// addTo adds rows to the groups that they name.
func addTo(ctx context.Context, tx *dialect.Session, rows []jobRow) error {
	members := make([]jobRow, 0, len(rows))
	for i := range rows {
		if rows[i].Group != 0 {
			members = append(members, rows[i])
		}
	}
	for part := range slices.Chunk(members, chunk) {
		if _, err := tx.Exec(ctx, addMembers, dialect.Args{"rows": jobRows(part)}); err != nil {
			return err
		}
	}
	return nil
}

// reopen has groups wait again for dead jobs that this transaction brings back.
func reopen(ctx context.Context, tx *dialect.Session, rows []jobRow) error {
	var members []ended
	for i := range rows {
		if rows[i].Group != 0 {
			members = append(members, ended{id: rows[i].id, group: rows[i].Group, state: memberPending})
		}
	}
	return finish(ctx, tx, members)
}

// groupsOf are the groups of jobs, each once.
func groupsOf(jobs []Info) []int64 {
	all := map[int64]bool{}
	for i := range jobs {
		if g := jobs[i].Group; g != 0 {
			all[g] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// finish notes what has become of jobs of groups.
func finish(ctx context.Context, tx *dialect.Session, members []ended) error {
	rows := make([]dialect.Args, len(members))
	for i := range members {
		e := &members[i]
		rows[i] = dialect.Args{"crew": e.group, "job": e.id, "became": string(e.state), "made": nil, "why": e.why}
		if e.result != nil {
			rows[i]["made"] = string(e.result)
		}
	}
	_, err := execParts(ctx, tx, finishMembers, dialect.Args{}, rows)
	return err
}
