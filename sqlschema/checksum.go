package sqlschema

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// firstVersion is the number of the first migration. Databases from before the first release have numbers below it,
// and programs of that time know none above 37: they take a database of today for a newer one, and leave it alone.
const firstVersion = 101

// checksums reads which migrations have run, by what they say and not by their numbers.
var checksums = sqlrun.SQL("sqlschema.checksums", `SELECT version, checksum FROM {prefix}migration_checksum`)

// checksum returns the SHA-256 of the statements that migrate up. A comment on a line of its own does not count.
func checksum(text string) string {
	up, _, _ := strings.Cut(text, "-- +goose Down")
	sum := sha256.New()
	for line := range strings.Lines(up) {
		line = strings.TrimRight(line, " \t\r\n")
		if line != "" && (!strings.HasPrefix(line, "-- ") || strings.HasPrefix(line, "-- +goose")) {
			fmt.Fprintln(sum, line)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// recorded adds to a migration that it records its checksum, and removes it on the way down. It belongs to the
// migration's own statements, so a table is never there without the checksum of what made it. It can be run again.
// The first migration drops the table of checksums on its way down.
func recorded(version int64, text string) string {
	up, down, _ := strings.Cut(text, "-- +goose Down\n")
	remove := fmt.Sprintf("DELETE FROM {prefix}migration_checksum WHERE version = %d;\n", version)
	insert := fmt.Sprintf("INSERT INTO {prefix}migration_checksum (version, checksum) VALUES (%d, '%s');\n", version, checksum(text))
	up = strings.TrimRight(up, "\n") + "\n\n" + remove + insert + "\n-- +goose Down\n"
	if version == firstVersion {
		return up + down
	}
	return up + remove + down
}

// ranOthers returns the versions whose migrations were others than this program's of the same number. It returns none if
// the user may not read the checksums.
func ranOthers(ctx context.Context, db *dialect.DB, upTo int64) (others []int64, err error) {
	type row struct {
		version  int64
		checksum string
	}
	rows, err := sqlrun.Select(ctx, &db.Session, checksums, nil, func(rows *sql.Rows) (r row, err error) {
		return r, rows.Scan(&r.version, &r.checksum)
	})
	if db.Dialect.Denied(err) {
		return nil, nil
	}
	if err != nil && !db.Dialect.Missing(err) {
		return nil, err
	}
	ran := map[int64]string{}
	for _, r := range rows {
		ran[r.version] = r.checksum
	}
	folder, err := folder(db.Dialect.Name, db.FurtherMigrations())
	if err != nil {
		return nil, err
	}
	all, err := numbered(folder)
	for i := range all {
		f := &all[i]
		sum, there := ran[f.Version]
		switch {
		case f.Version > upTo, slices.Contains(promptVersions, f.Version) && !there: // it may have been left out
			continue
		case !there:
			others = append(others, f.Version)
			continue
		}
		text, err := f.read(folder)
		if err != nil {
			return nil, err
		}
		if checksum(text) != sum {
			others = append(others, f.Version)
		}
	}
	return others, err
}

// tooOld tells of tables from before the first release.
func tooOld(version int64) error {
	return fmt.Errorf("%w: they are at version %d, from before the first release; today's versions begin at %d."+
		" Finish their work with the dbcron that made them, drop them with it (dbcron migrate to 0), then run dbcron migrate up of this one (docs/upgrading.md)",
		ErrTooOld, version, firstVersion)
}

// mismatch tells of tables that another build has made.
func mismatch(version int64) error {
	return fmt.Errorf("%w: migration %d of the build that made them said something else."+
		" Use that build; or finish their work with it, drop them with it (dbcron migrate to 0), and run dbcron migrate up of this one (docs/upgrading.md)",
		ErrMismatch, version)
}
