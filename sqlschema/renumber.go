package sqlschema

import (
	"context"
	"fmt"
	"strings"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Before anything was released, the first 37 migrations became two, which make the same (docs/adr/0046). A database
// that stands at the last of the 37 is given the new number; all of this can go with the migration that gets the number
// 37 anew, for then nothing tells the numbers apart.
const (
	oldLatest = 37 // the newest of the migrations that are gone
	squashed  = 2  // the migration that stands for them
	oldCommit = "1df94ab"
)

var (
	renumber = sqlrun.SQL("sqlschema.renumber", fmt.Sprintf(`DELETE FROM {prefix}migration WHERE version_id > %d`, squashed))

	// newest reads from the table that the last of the old migrations made, and the first of the new ones.
	newest = sqlrun.SQL("sqlschema.newest", `SELECT COUNT(*) FROM {prefix}secret WHERE 1 = 0`)
)

// hasOldNumber reports whether a version is that of a database whose migrations are among those that are gone.
func hasOldNumber(ctx context.Context, db *dialect.DB, version int64) (bool, error) {
	if version <= 0 || version >= oldLatest {
		return version == oldLatest, nil
	}
	var n int
	err := db.Get(ctx, newest, nil, &n)
	if db.Dialect.Missing(err) {
		return true, nil
	}
	if db.Dialect.Denied(err) {
		err = nil // it is there
	}
	return false, err
}

func tooOld(version int64) error {
	return fmt.Errorf("%w: it is at version %d of %d that were there before the first release; bring it to version %d"+
		" with a dbcron of commit %s, then run dbcron migrate up of this one (docs/upgrading.md)",
		ErrTooOld, version, oldLatest, oldLatest, oldCommit)
}

// renumbered returns the version, after a database at the last of the old ones was given the new number. Whoever calls it
// holds the lock.
func renumbered(ctx context.Context, db *dialect.DB) (int64, error) {
	version, err := Version(ctx, db)
	if err != nil {
		return 0, err
	}
	switch old, err := hasOldNumber(ctx, db, version); {
	case err != nil || !old:
		return version, err
	case version != oldLatest:
		return version, tooOld(version)
	}
	if err := hasTables(ctx, db); err != nil {
		return version, err
	}
	_, err = db.Exec(ctx, renumber, nil)
	return squashed, err
}

var (
	createdTable  = pattern.Lazy(`(?ms)^CREATE TABLE \{prefix\}(\w+) \([^\n]*\n(.*?)\n\)`)
	createdColumn = pattern.Lazy(`(?m)^    ([a-z]\w*) `)
)

// hasTables returns nil if the tables of the first migration are there, with all columns. Those that the first
// 37 migrations made are the same but for the order of the columns.
func hasTables(ctx context.Context, db *dialect.DB) error {
	all, err := files(db.Dialect.Name, nil, "{prefix}", "{name}")
	if err != nil {
		return err
	}
	up := strings.ReplaceAll(all[0].text, "CREATE TABLE IF NOT EXISTS ", "CREATE TABLE ")
	for _, table := range createdTable().FindAllStringSubmatch(up, -1) {
		var columns []string
		for _, column := range createdColumn().FindAllStringSubmatch(table[2], -1) {
			columns = append(columns, column[1])
		}
		var n int
		err := db.Pool().QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT %s FROM %s%s WHERE 1 = 0) AS none",
			strings.Join(columns, ", "), db.Prefix(), table[1])).Scan(&n)
		if err != nil {
			return fmt.Errorf("%w: its version is %d, but its tables are not those of that version: %w", ErrTooOld, oldLatest, err)
		}
	}
	return nil
}
