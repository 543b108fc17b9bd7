package audit

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/trouble"
)

const (
	sweepEvery = time.Hour
	sweepBatch = 5000 // ids in one transaction: more would hold up others
)

// A Keep says which entries stay.
type Keep struct {
	For time.Duration // younger ones; 0: of any age
	Max int64         // the newest so many, by their ids, of which some may be missing; 0: all
}

// Usual is what a daemon keeps unless it is told otherwise.
var Usual = Keep{For: 90 * 24 * time.Hour, Max: 1_000_000}

var (
	// ends reads both ends of the primary key.
	ends = dialect.SQL("audit.ends", `SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM {prefix}audit`)

	// newestOld finds the newest entry that is too old, at one end of a range of the index.
	newestOld = dialect.SQL("audit.newest-old", `
		SELECT id FROM {prefix}audit WHERE done_at < {now + :since} ORDER BY done_at DESC, id DESC LIMIT 1`)

	// sweep goes along the primary key. Daemons that sweep at once want the same rows in the
	// same order, so that one waits for the other and finds them gone; new rows are behind.
	sweep = dialect.SQL("audit.sweep", `DELETE FROM {prefix}audit WHERE id >= :from AND id <= :to`)
)

// Sweep removes the entries that are not to be kept, and returns how many.
func Sweep(ctx context.Context, db *dialect.DB, keep Keep) (removed int64, err error) {
	var first, last, upTo int64
	if err := db.Get(ctx, ends, nil, &first, &last); err != nil || last == 0 {
		return 0, err
	}
	if keep.For > 0 {
		err := db.Get(ctx, newestOld, dialect.Args{"since": -keep.For.Microseconds()}, &upTo)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
	}
	if keep.Max > 0 {
		upTo = max(upTo, last-keep.Max)
	}
	for from := first; from <= upTo; from += sweepBatch {
		n, err := db.Exec(ctx, sweep, dialect.Args{"from": from, "to": min(from+sweepBatch-1, upTo)})
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// SweepOften sweeps every hour until ctx ends, the first time within a minute.
func SweepOften(ctx context.Context, db *dialect.DB, keep Keep, log *slog.Logger) {
	trouble := trouble.New(log, "removing old entries of the audit")
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(time.Minute))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		_, err := Sweep(ctx, db, keep)
		if ctx.Err() == nil {
			timer.Reset(trouble.Wait(err, sweepEvery-time.Minute+time.Duration(rand.Int64N(int64(2*time.Minute)))))
		}
	}
}
