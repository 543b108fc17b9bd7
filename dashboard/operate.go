package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

type backfillData struct {
	Name, Zone string
	From, To   string // as entered
	Wrong      string // what is wrong with them
	Counted    bool
	Run, Left  int // slots to run, and slots whose run is ok or has not ended
	First      time.Time
	Last       time.Time
	here       *time.Location
}

// Wall formats an instant by the clock of the schedule's zone.
func (b *backfillData) Wall(t time.Time) string { return wallText(t, b.here) }

// window reads a schedule and the period whose slots are to be run. Both ends are by the
// schedule's clock.
func (d *Dashboard) window(ctx context.Context, r *request) (name string, zone *time.Location, from, to time.Time, err error) {
	if name, err = r.nameIn("name"); err != nil {
		return name, nil, from, to, err
	}
	s, err := scheduler.Get(ctx, d.db, name)
	if err != nil {
		return name, nil, from, to, err
	}
	zone = zoneOf(&s)
	field := "from"
	if from, err = wallTime(r.query.Get(field), zone); err == nil {
		field = "to"
		to, err = wallTime(r.query.Get(field), zone)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", scheduler.ErrInvalid, field, err)
	}
	return name, zone, from, to, err
}

// showBackfill shows how many slots would be run. It changes nothing.
func (d *Dashboard) showBackfill(ctx context.Context, r *request) (*view, error) {
	name, zone, from, to, err := d.window(ctx, r)
	if zone == nil {
		return nil, err
	}
	data := &backfillData{Name: name, Zone: zone.String(), From: r.query.Get("from"), To: r.query.Get("to"), here: zone}
	v := &view{template: "backfill.html", title: "Backfill " + plain.Clean(name), section: "schedules", data: data, still: true}
	if !r.who.may("/backfill", "backfill") {
		return v, nil
	}
	var would scheduler.Backfilling
	if err == nil {
		would, err = scheduler.Backfill(ctx, d.db, name, from, to, true)
	}
	if errors.Is(err, scheduler.ErrInvalid) {
		data.Wrong, v.status = sentence(err.Error()), http.StatusUnprocessableEntity
		return v, nil
	}
	if data.Counted, data.Run, data.Left = true, len(would.Slots), would.Left; data.Run > 0 {
		data.First, data.Last = would.Slots[0], would.Slots[data.Run-1]
	}
	return v, err
}

// backfillSchedule runs past slots that have no successful run.
func (d *Dashboard) backfillSchedule(ctx context.Context, r *request) (outcome, error) {
	name, _, from, to, err := d.window(ctx, r)
	if err != nil {
		return outcome{}, err
	}
	done, err := scheduler.Backfill(ctx, d.db, name, from, to, false)
	note := "backfilled"
	if len(done.Slots) == 0 {
		note = "nothingMissed"
	}
	return outcome{
		note: note, n: len(done.Slots), counted: true, object: name, detail: stamp(from) + " to " + stamp(to) + " UTC",
		to: link("schedule", "name", name),
	}, err
}

// wallTime parses a browser's value of a time field: a wall clock time.
func wallTime(text string, zone *time.Location) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 2026-11-20T10:00", plain.Cut(text, 30))
}

// drainNode stops a process from taking new work, and undrainNode lets it take work again.
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
