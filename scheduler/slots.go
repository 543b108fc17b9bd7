package scheduler

import (
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// never is the next_exec of a schedule without slots, which runs only on request.
var never = time.Date(9999, time.December, 29, 0, 0, 0, 0, time.UTC)

// first returns a new schedule's first slot after now, and when it may be claimed.
func (s *Schedule) first(plan *cronspec.Schedule, now time.Time) (due, next time.Time, err error) {
	early := s.Starts.After(now)
	switch {
	case s.FirstRun == "now" && !early && !s.over(now):
		due = now.Truncate(time.Millisecond)
		return due, due, nil
	case plan.Spec().Manual():
		return time.Time{}, never, nil
	}
	if early {
		now = s.Starts.Add(-time.Microsecond)
	}
	every := plan.Spec().Every()
	if every > 0 {
		now = s.onBeat(now)
	}
	due, ok := plan.Next(now)
	if early && every > 0 { // @every counts from the schedule's start
		due = s.Starts.Add(time.Second - 1).Truncate(time.Second)
	}
	if !ok || s.over(due) {
		return due, next, fmt.Errorf("%w: %s: %q has no slot after %s%s", ErrInvalid, s.Name, s.Spec, plain.Instant(now, time.UTC), s.until())
	}
	return due, due.Add(s.delay(plan, due)), nil
}

// onBeat returns an instant's second, at the fraction of it at which the schedule's slots are: 0, unless it began with a run at once, or
// the database's clock went back.
func (s *Schedule) onBeat(at time.Time) time.Time {
	return at.Truncate(time.Second).Add(time.Duration(s.Due.Nanosecond()).Truncate(time.Millisecond))
}

// restart returns the slot at which a schedule without one continues: the first slot, if it is new.
// An @every schedule that was interrupted keeps its rhythm.
func (c *candidate) restart() (due, next time.Time, err error) {
	s := c.Schedule
	if c.fence > 0 || !s.Due.IsZero() {
		s.FirstRun = "next" // it is not a new schedule
	}
	now := c.now
	every := c.plan.Spec().Every()
	switch {
	case every == 0 || s.Due.IsZero() || s.Due.After(now.Add(every)):
	case s.Due.After(now):
		now = s.Due.Add(-every)
	default:
		now = rangeOf(c.plan, s.Due, now).to
	}
	return s.first(c.plan, now)
}

// over reports whether an instant is past the schedule's end.
func (s *Schedule) over(t time.Time) bool { return !s.Ends.IsZero() && t.After(s.Ends) }

func (s *Schedule) pastEnd() string { return "its end is past: " + s.Ends.Format(time.RFC3339) }

func (s *Schedule) until() string {
	if s.Ends.IsZero() {
		return ""
	}
	return " and before its end, " + plain.Instant(s.Ends, time.UTC)
}

// delay returns a slot's jitter. It depends only on the name and the slot, and is less than the time
// to the next slot.
func (s *Schedule) delay(plan *cronspec.Schedule, due time.Time) time.Duration {
	if s.Jitter <= 0 {
		return 0
	}
	limit := s.Jitter
	if next, ok := plan.Next(due); ok {
		limit = min(limit, next.Sub(due)-1)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\n%d", s.Name, due.Unix())
	sum := h.Sum64()
	sum ^= sum >> 29 // the last bytes of FNV change only its low bits
	return time.Duration(sum*0x9e3779b97f4a7c15>>1%uint64(max(1, limit/time.Millisecond))) * time.Millisecond
}

// A slotRange is a run of consecutive slots that do not run.
type slotRange struct {
	from, to time.Time
	n        int64
	why      string // why they do not run
}

// A decision is what a due schedule does: which slots run, which were due but do not run, and which is
// next.
type decision struct {
	runs      []time.Time
	missed    []slotRange
	due, next time.Time // the next slot, and when it may be claimed
	ended     string    // or why there is no next slot
}

// missedLimit bounds the count of missed slots. A longer range reports this number: counting the
// minutes of years would hold up the claim. The ends of the range are exact nevertheless.
const missedLimit = 10_000

const (
	whyNobody = "no daemon was there, and free, to run it"
	whyLate   = "it was too late to run it: see missed_window"
	whyPolicy = "no daemon was there, and free, to run it; the policy is to skip it"
	whyMany   = "no daemon was there, and free, to run it; the newest 100 are run"
)

// decide determines what happens to the slots from Due to now.
func (c *candidate) decide() (t decision) {
	last := c.latest()
	switch next, ok := c.plan.Next(last); {
	case ok && !c.over(next):
		t.due, t.next = next, next.Add(c.delay(c.plan, next))
	case ok:
		t.ended = c.pastEnd()
	case c.plan.Spec().Manual():
		t.next = never
	default:
		t.ended = fmt.Sprintf("%q has no slot after %s", c.Spec, plain.Instant(last, time.UTC))
	}
	if c.over(last) { // the schedule's end was moved before its next slot
		return t
	}
	from := c.Due
	if bound := c.bound(); bound.After(from) { // some slots are too late
		why := whyLate
		if c.Missed == "skip" && c.MissedWindow == 0 {
			why = whyPolicy
		}
		if bound.After(last) {
			t.missed = append(t.missed, c.slotRange(from, last, why))
			return t
		}
		before := bound.Add(-time.Microsecond)
		t.missed = append(t.missed, c.slotRange(from, before, why))
		from, _ = c.plan.Next(before)
		if c.plan.Spec().Every() > 0 { // @every counts from a slot
			from, _ = c.plan.Next(t.missed[0].to)
		}
	}
	t.runs = []time.Time{last}
	why := whyNobody
	if c.Missed == "all" {
		t.runs, why = c.lastOf(from, last), whyMany
	}
	if oldest := t.runs[0]; from.Before(oldest) {
		t.missed = append(t.missed, c.slotRange(from, oldest.Add(-time.Microsecond), why))
	}
	return t
}

// latest returns the newest slot whose time, including its jitter, has come.
func (c *candidate) latest() time.Time {
	last, ok := c.plan.Latest(c.Due, c.lastMoment())
	if !ok {
		return c.Due
	}
	if last.Add(c.delay(c.plan, last)).After(c.now) {
		if last, ok = c.plan.Latest(c.Due, last.Add(-time.Microsecond)); !ok {
			return c.Due
		}
	}
	return last
}

// bound returns the oldest instant that a slot may have and still run now.
func (c *candidate) bound() time.Time {
	window := c.MissedWindow
	if c.Missed == "skip" && window == 0 {
		window = skipWindow
	}
	if window == 0 {
		return time.Time{}
	}
	return c.now.Add(-window - c.Jitter)
}

// lastOf returns the last slots between two slots, in order: as many as may be caught up.
func (c *candidate) lastOf(from, to time.Time) []time.Time {
	start := from
	if every := c.plan.Spec().Every(); every > 0 {
		if n := int64(to.Sub(from) / every); n >= catchUpLimit {
			start = from.Add(time.Duration(n-catchUpLimit+1) * every)
		}
	} else {
		for back := time.Hour; ; back *= 2 {
			start = to.Add(-back)
			if back > 100*365*24*time.Hour || !start.After(from) {
				start = from
				break
			}
			if c.plan.Count(start, to, catchUpLimit) == catchUpLimit {
				start, _ = c.plan.Next(start)
				break
			}
		}
	}
	var all []time.Time
	for slot, ok := start, true; ok && !slot.After(to); slot, ok = c.plan.Next(slot) {
		all = append(all, slot)
	}
	return all[max(0, len(all)-catchUpLimit):]
}

// slotRange returns the slots from one slot until a time.
func (c *candidate) slotRange(from, until time.Time, why string) slotRange {
	s := rangeOf(c.plan, from, until)
	s.why = why
	return s
}

// lastMoment is now, or the schedule's end if that is earlier.
func (c *candidate) lastMoment() time.Time {
	if c.over(c.now) {
		return c.Ends
	}
	return c.now
}

// without returns what is left of a range after some slots, given in order, are removed.
func (m slotRange) without(plan *cronspec.Schedule, taken []attemptAt) (parts []slotRange) {
	if len(taken) == 0 {
		return []slotRange{m}
	}
	from, more := m.from, true
	for _, t := range taken {
		if !more || from.After(m.to) {
			return parts
		}
		if t.due.After(from) {
			part := rangeOf(plan, from, t.due.Add(-time.Microsecond))
			part.why = m.why
			parts = append(parts, part)
			from, more = plan.Next(part.to)
		}
		if t.due.Equal(from) {
			from, more = plan.Next(from)
		}
	}
	if more && !from.After(m.to) {
		part := rangeOf(plan, from, m.to)
		part.why = m.why
		parts = append(parts, part)
	}
	return parts
}

func rangeOf(plan *cronspec.Schedule, from, until time.Time) slotRange {
	to := from
	if last, ok := plan.Latest(from, until); ok {
		to = last
	}
	limit := missedLimit - 1
	if plan.Spec().Every() > 0 {
		limit = math.MaxInt - 1 // almost MaxInt: enough for an interval, which Count divides
	}
	return slotRange{from: from, to: to, n: 1 + int64(plan.Count(from, to, limit))}
}
