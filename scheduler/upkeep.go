package scheduler

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
)

// A trimming is a schedule whose history may have grown too long.
type trimming struct {
	schedule string
	keep     int
}

const (
	purgeEvery = time.Minute
	purgeBatch = 500 // rows per transaction; larger ones would block others
)

// upkeep deletes surplus and outdated history until ctx ends, and looks after @reboot. Every daemon
// takes part and skips the rows that another one is deleting.
func (s *Scheduler) upkeep(ctx context.Context) {
	trouble := trouble.New(s.opt.Logger, "removing old history")
	wait := time.Duration(rand.Int64N(int64(purgeEvery)))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case t := <-s.surplus:
			err = s.purgeAll(ctx, surplus, sqlrun.Args{"schedule": t.schedule, "newer": t.keep - 1})
		case <-timer.C:
			noted := s.lookAtBoot(ctx, false)
			if errors.Is(noted, errHeld) { // the next time
				noted = nil
			}
			err = errors.Join(s.purgeAll(ctx, outdated, nil), noted, s.endOfGone(ctx))
			timer.Reset(purgeEvery/2 + time.Duration(rand.Int64N(int64(purgeEvery))))
		}
		if ctx.Err() == nil {
			trouble.Wait(err, 0)
		}
	}
}

// purgeAll deletes the rows that a statement selects, batch by batch.
func (s *Scheduler) purgeAll(ctx context.Context, which *sqlrun.Stmt, args sqlrun.Args) error {
	with := sqlrun.Args{"limit": purgeBatch}
	for name, value := range args {
		with[name] = value
	}
	for {
		var n int64
		err := s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			ids, err := sqlrun.Select(ctx, tx, which, with, func(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) })
			if err != nil || len(ids) == 0 {
				n = 0
				return err
			}
			n, err = tx.Exec(ctx, purge, sqlrun.Args{"ids": ids})
			return err
		})
		if err != nil || n < purgeBatch {
			return err
		}
	}
}
