package scheduler

import (
	"context"
	"time"

	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
)

// attend keeps this daemon's row in the table of nodes alive until ctx ends, even while it runs
// nothing: migrations see from it that the tables are in use.
func (s *Scheduler) attend(ctx context.Context) {
	defer s.depart(ctx)
	trouble := trouble.New(s.opt.Logger, "announcing this daemon")
	for ctx.Err() == nil {
		wait := trouble.Wait(s.stay(ctx), s.opt.Lease/3)
		pace.Sleep(ctx, wait)
	}
}

// stay renews this daemon's row, or inserts it if it is missing.
func (s *Scheduler) stay(ctx context.Context) error {
	lease := s.opt.Lease.Microseconds()
	n, err := s.db.Exec(ctx, stay, sqlrun.Args{"node": s.owner, "lease": lease})
	if err != nil || n > 0 {
		return err
	}
	if err := s.forgetDeparted(ctx); err != nil {
		return err
	}
	_, err = s.db.Exec(ctx, arrive, sqlrun.Args{"node": s.owner, "lease": lease, "version": s.opt.Version, "tags": shortList(s.opt.Tags)})
	return err
}

// forgetDeparted deletes the rows of daemons that died a day ago.
func (s *Scheduler) forgetDeparted(ctx context.Context) error {
	since := -(24 * time.Hour).Microseconds()
	gone, err := sqlrun.Select(ctx, &s.db.Session, departed, sqlrun.Args{"since": since, "limit": batch}, scanText)
	if err != nil || len(gone) == 0 {
		return err
	}
	_, err = s.db.Exec(ctx, forgetNodes, sqlrun.Args{"names": gone, "since": since})
	return err
}

// shortList joins tags into a list that fits the column.
func shortList(tags []string) string {
	text := ""
	for i, tag := range tags {
		if len(text)+len(tag) > 900 {
			return text + ",…"
		}
		if i > 0 {
			text += ","
		}
		text += tag
	}
	return text
}

// depart removes this daemon's row when it stops. If that fails, the row's lease expires.
func (s *Scheduler) depart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = s.db.Exec(ctx, leave, sqlrun.Args{"node": s.owner})
}
