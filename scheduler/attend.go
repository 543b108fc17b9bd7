package scheduler

import (
	"context"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/trouble"
)

// attend says in the table of nodes that this daemon is there, until ctx ends: also while it
// runs nothing, so that nobody takes the tables away from under it.
func (s *Scheduler) attend(ctx context.Context) {
	defer s.depart(ctx)
	trouble := trouble.New(s.opt.Logger, "telling that this daemon is there")
	for ctx.Err() == nil {
		wait := trouble.Wait(s.stay(ctx), s.opt.Lease/3)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// stay renews this daemon's row, and makes it where there is none.
func (s *Scheduler) stay(ctx context.Context) error {
	lease := s.opt.Lease.Microseconds()
	n, err := s.db.Exec(ctx, stay, dialect.Args{"node": s.owner, "lease": lease})
	if err != nil || n > 0 {
		return err
	}
	if _, err := s.db.Exec(ctx, departed, dialect.Args{"since": -(24 * time.Hour).Microseconds()}); err != nil {
		return err
	}
	_, err = s.db.Exec(ctx, arrive, dialect.Args{"node": s.owner, "lease": lease, "version": s.opt.Version, "tags": shortList(s.opt.Tags)})
	return err
}

// shortList is a list of tags that the table takes.
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

// depart removes the row of a daemon that has ended. If it cannot, the lease ends it.
func (s *Scheduler) depart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = s.db.Exec(ctx, leave, dialect.Args{"node": s.owner})
}
