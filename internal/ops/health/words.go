package health

import (
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// NextSlots returns up to n next slots of a schedule, or none if it is not active.
func NextSlots(s *scheduler.Schedule, at Plan, n int) (slots []time.Time) {
	plan, err := s.Slots()
	if err != nil || s.State != "active" {
		return nil
	}
	slot, ok := s.Due, !s.Due.IsZero()
	if at.Next.IsZero() { // Due is from before it was paused
		now := at.Now
		if before := s.Starts.Add(-time.Microsecond); before.After(now) {
			now = before
		}
		slot, ok = plan.Next(now)
	}
	for ; ok && len(slots) < n && (s.Ends.IsZero() || !slot.After(s.Ends)); slot, ok = plan.Next(slot) {
		slots = append(slots, slot)
	}
	return slots
}

// InZone formats an instant in the schedule's zone.
func InZone(t time.Time, s *scheduler.Schedule) string {
	plan, err := cronspec.New("@daily", s.Zone, "")
	if err != nil {
		return plain.Instant(t, time.UTC)
	}
	return plain.Instant(t, plan.Location())
}

// Result describes the result of a run.
func Result(r *scheduler.Run) string {
	var parts []string
	if r.State == "skipped" || r.State == "missed" {
		if r.Slots > 1 {
			parts = append(parts, fmt.Sprintf("%d slots", r.Slots))
		}
		return strings.Join(append(parts, plain.Line(r.Error, 1000)), ": ")
	}
	if r.Error != "" {
		parts = append(parts, plain.Line(r.Error, 1000))
	}
	if !r.Started.IsZero() && !r.Finished.IsZero() {
		parts = append(parts, "took "+r.Finished.Sub(r.Started).Round(time.Millisecond).String())
	}
	parts = append(parts, fmt.Sprintf("run %d", r.ID))
	if r.By != "" {
		parts = append(parts, "on "+plain.Line(r.By, 200))
	}
	if why := causes[r.Cause]; why != "" {
		parts = append(parts, why)
	}
	return strings.Join(parts, ", ")
}

// WithJob is Result, preceded by the job that a run of NewestRuns has enqueued.
func WithJob(r *scheduler.Run) string {
	if r.Output == "" {
		return Result(r)
	}
	return plain.Line(strings.TrimSpace(r.Output), 300) + ", " + Result(r)
}

// causes describes why runs exist that are not due to a slot.
var causes = map[string]string{
	"hand":     "started by hand",
	"backfill": "a backfill",
	"chain":    "started by another schedule",
	"boot":     "its host had started",
}

// UnderWay describes what an open run is doing.
func UnderWay(r *scheduler.Run, s *scheduler.Schedule) string {
	text := fmt.Sprintf("run %d, slot %s", r.ID, InZone(r.Due, s))
	if r.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", r.Attempt)
	}
	if why := causes[r.Cause]; why != "" {
		text += ", " + why
	}
	if r.State != "waiting" {
		text += ", since " + InZone(r.Started, s) + " on " + plain.Line(r.By, 200)
	}
	if r.State == "running" && r.Error != "" {
		text += ": " + plain.Line(r.Error, 300)
	}
	if r.Cancel != "" {
		text += "; its daemon has been asked to end it: " + plain.Line(r.Cancel, 200)
	}
	return text
}

// StateOf tells the state of a schedule, and why it is not active.
func StateOf(s *scheduler.Schedule) string {
	text := s.State
	if s.State == "active" && s.Failures > 0 {
		text += ", but " + plain.Plural(s.Failures, "slot in a row has failed", "slots in a row have failed")
	}
	if s.Reason != "" {
		text += ": " + plain.Line(s.Reason, 1000)
	}
	return text
}
