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

// The table of the groups' members.

// enter locks the groups to which rows are added, in the order of their ids.
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

// addTo adds rows to their groups.
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
