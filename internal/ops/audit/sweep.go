package audit

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
)

const (
	sweepEvery = time.Hour
	sweepBatch = 5000 // ids per transaction; more would block others
)

// A Keep says which entries to keep.
type Keep struct {
	For time.Duration // keep younger ones; 0: of any age
	Max int64         // keep the ids of the newest so many, some of which may be missing; 0: all
}

// Usual is the default retention.
var Usual = Keep{For: 90 * 24 * time.Hour, Max: 1_000_000}

var (
	// ends reads both ends of the primary key.
	ends = sqlrun.SQL("audit.ends", `SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM {prefix}audit`)

	// newestOld finds the newest entry that is too old, at one end of a range of the index.
	newestOld = sqlrun.SQL("audit.newest-old", `
		SELECT id FROM {prefix}audit WHERE done_at < {now + :since} ORDER BY done_at DESC, id DESC LIMIT 1`)

	// sweep deletes along the primary key. Concurrent daemons delete in the same order: one waits for
	// the other and finds the rows gone. New rows come after them.
	sweep = sqlrun.SQL("audit.sweep", `DELETE FROM {prefix}audit WHERE id >= :from AND id <= :to`)
)

// Sweep deletes the entries that are not to be kept, and returns how many.
func Sweep(ctx context.Context, db *dialect.DB, keep Keep) (removed int64, err error) {
	var first, last, upTo int64
	if err := db.Get(ctx, ends, nil, &first, &last); err != nil || last == 0 {
		return 0, err
	}
	if keep.For > 0 {
		err := db.Get(ctx, newestOld, sqlrun.Args{"since": -keep.For.Microseconds()}, &upTo)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
	}
	if keep.Max > 0 {
		upTo = max(upTo, last-keep.Max)
	}
	for from := first; from <= upTo; from += sweepBatch {
		n, err := db.Exec(ctx, sweep, sqlrun.Args{"from": from, "to": min(from+sweepBatch-1, upTo)})
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
