package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What stands in the table of the members of groups.

// enter locks the groups that rows are added to, in the order of their ids.
func enter(ctx context.Context, tx *sqlrun.Session, rows []jobRow) error {
	groups := map[int64]bool{}
	for i := range rows {
		if rows[i].Group != 0 {
			groups[rows[i].Group] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		var state string
		switch err := tx.Get(ctx, store.EnterGroup, sqlrun.Args{"group": id}, &state); {
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
func addTo(ctx context.Context, tx *sqlrun.Session, rows []jobRow) error {
	members := make([]jobRow, 0, len(rows))
	for i := range rows {
		if rows[i].Group != 0 {
			members = append(members, rows[i])
		}
	}
	for part := range slices.Chunk(members, store.Chunk) {
		if _, err := tx.Exec(ctx, store.AddMembers, sqlrun.Args{"rows": stored(part)}); err != nil {
			return err
		}
	}
	return nil
}

// reopen has groups wait again for dead jobs that this transaction brings back.
func reopen(ctx context.Context, tx *sqlrun.Session, rows []jobRow) error {
	var members []store.Ended
	for i := range rows {
		if rows[i].Group != 0 {
			members = append(members, store.Ended{ID: rows[i].id, Group: rows[i].Group, State: store.MemberPending})
		}
	}
	return store.Finish(ctx, tx, members)
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
