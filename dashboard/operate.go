package dashboard

import (
	"context"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/audit"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

// backfillSchedule runs slots of the past that have no good run. Both times are by the
// schedule's clock.
func (d *Dashboard) backfillSchedule(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return outcome{}, err
	}
	s, err := scheduler.Get(ctx, d.db, name)
	if err != nil {
		return outcome{}, err
	}
	var at [2]time.Time
	for i, field := range []string{"from", "to"} {
		if at[i], err = wallTime(r.PostForm.Get(field), zoneOf(&s)); err != nil {
			return outcome{}, fmt.Errorf("%w: %s: %w", scheduler.ErrInvalid, field, err)
		}
	}
	done, err := scheduler.Backfill(ctx, d.db, name, at[0], at[1], false)
	note := "backfilled"
	if len(done.Slots) == 0 {
		note = "nothingMissed"
	}
	return outcome{note: note, n: len(done.Slots), counted: true, detail: stamp(at[0]) + " to " + stamp(at[1])}, err
}

// wallTime reads what a browser sends of a field for a time: one of a wall clock.
func wallTime(text string, zone *time.Location) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 2026-11-20T10:00", plain.Cut(text, 30))
}

// drainNode has a process take no new work, and undrainNode has it take work again.
func (d *Dashboard) drainNode(ctx context.Context, r *request) (outcome, error) {
	name, err := r.formName("name")
	if err != nil {
		return outcome{}, err
	}
	by := r.who.Name
	if by == "" {
		by = audit.ThisHost
	}
	found, err := scheduler.Drain(ctx, d.db, name, by)
	return outcome{note: "drained", action: "node.drain", object: name, n: len(found), to: "daemons?"}, err
}

func (d *Dashboard) undrainNode(ctx context.Context, r *request) (outcome, error) {
	name, err := r.formName("name")
	if err != nil {
		return outcome{}, err
	}
	found, err := scheduler.Undrain(ctx, d.db, name)
	return outcome{note: "undrained", action: "node.undrain", object: name, n: len(found), to: "daemons?"}, err
}
