package cronspec

import (
	"fmt"
	"time"
)

var (
	// New and Parse search for a first slot from here. The start is fixed so that a spec
	// accepted today is accepted tomorrow.
	probeFrom = time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)

	// All slots lie between these: RFC 3339 and the databases end with the year 9999.
	earliest = time.Date(2, time.January, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
)

// A Schedule is a spec in a time zone under a DST rule: a set of instants, its
// slots. It does not change and is safe for concurrent use.
type Schedule struct {
	spec Spec
	zone string
	loc  *time.Location
	dst  DST
}

// New returns the schedule of a spec (see Parse) in the time zone with the
// given IANA name, "" being UTC, under a DST rule (see ParseDST). It refuses
// "Local", which differs between hosts, and a spec that never fires. Its errors
// wrap ErrInvalid.
func New(spec, zone, dst string) (*Schedule, error) {
	parsed, err := Parse(spec)
	if err != nil {
		return nil, err
	}
	rule, err := ParseDST(dst)
	if err != nil {
		return nil, err
	}
	if zone == "" {
		zone = "UTC"
	}
	loc, err := loadZone(zone)
	if err != nil {
		return nil, err
	}
	s := &Schedule{spec: parsed, zone: zone, loc: loc, dst: rule}
	if _, ok := s.Next(probeFrom); !ok && !parsed.never {
		return nil, fmt.Errorf("%w: spec %q never fires in %s under the rule %s: "+
			"the clocks skip its times; use another time or the rule vixie", ErrInvalid, parsed.text, zone, rule)
	}
	return s, nil
}

// String returns spec, zone and DST rule: "0 9 * * 1-5 Europe/Berlin vixie".
func (s *Schedule) String() string {
	return s.spec.text + " " + s.zone + " " + string(s.dst)
}

// Spec returns the schedule's spec.
func (s *Schedule) Spec() Spec { return s.spec }

// Location returns the schedule's time zone.
func (s *Schedule) Location() *time.Location { return s.loc }

// Next returns the first slot strictly after the given time, in UTC. It returns
// false when there is none within 40 years or before the year 10000.
//
// An @every schedule counts from the given time, truncated to milliseconds, which
// every engine stores: pass the slot before, and the distance from slot to slot stays exact.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	after = clamp(after)
	if after.Equal(latest) {
		return time.Time{}, false
	}
	var slot time.Time
	ok := true
	if s.spec.never {
		return slot, false
	}
	if s.spec.every > 0 {
		slot = after.Truncate(time.Millisecond).Add(s.spec.every)
	} else {
		slot, ok = s.nextSlot(after)
	}
	if !ok || slot.After(latest) {
		return time.Time{}, false
	}
	return slot, true
}

// nextSlot walks over the zone's segments of constant offset. Within one, wall
// time is an instant plus a constant, so the next slot is the next wall time
// that matches, unless the segment ends before.
func (s *Schedule) nextSlot(after time.Time) (time.Time, bool) {
	once := s.dst == Vixie && s.spec.fixed
	giveUp := after.AddDate(searchYears, 0, 1)
	seg := segmentAt(after, s.loc)
	wall := after.Add(seg.offset)
	if once {
		if shown := seg.shown(after, s.loc); shown.After(wall) {
			wall = justBefore(shown)
		}
	}

	slot, ok := s.spec.next(wall)
	for ok && !seg.end.IsZero() && !slot.Add(-seg.offset).Before(seg.end) {
		if seg.end.After(giveUp) {
			return time.Time{}, false
		}
		next := segmentAt(seg.end, s.loc)
		old, now := seg.end.Add(seg.offset), seg.end.Add(next.offset) // what the wall shows before and after
		gap, small := now.After(old), now.Sub(old).Abs() <= maxShift
		switch {
		case once && small && gap && slot.Before(now):
			return seg.end, true
		case once && small && !gap:
			// After a backward change the repeated times have been shown before. The slot found is
			// later than those.
		case slot.Before(now) || now.Before(old):
			slot, ok = s.spec.next(justBefore(now))
		}
		seg = next
	}
	return slot.Add(-seg.offset), ok
}

// Skipped returns how many times of a spec with a fixed time of day are one slot at the end of a gap, at the most, between two instants:
// those that the clocks skip, and that end itself. It is 0 where they skip none, for other specs, and under the rule [Wall].
func (s *Schedule) Skipped(from, until time.Time) (most int) {
	if s.dst != Vixie || !s.spec.fixed {
		return 0
	}
	for seg := segmentAt(from, s.loc); !seg.end.IsZero() && seg.end.Before(until); {
		next := segmentAt(seg.end, s.loc)
		old, now := seg.end.Add(seg.offset), seg.end.Add(next.offset)
		if gap := now.Sub(old); gap > 0 && gap <= maxShift {
			n := 0
			at, ok := s.spec.next(justBefore(old))
			if ok && at.Before(now) {
				for ; ok && !at.After(now); at, ok = s.spec.next(at) {
					n++
				}
			}
			most = max(most, n)
		}
		seg = next
	}
	return most
}

// justBefore makes a search for times strictly after its argument include t.
func justBefore(t time.Time) time.Time { return t.Add(-time.Nanosecond) }

// Latest returns the newest slot in (after, until], or false if there is none. It takes
// logarithmic time in the number of slots. An @every schedule counts from after, as in Next.
func (s *Schedule) Latest(after, until time.Time) (time.Time, bool) {
	after, until = clamp(after), clamp(until)
	if s.spec.every > 0 {
		steps := s.steps(after, until)
		if steps <= 0 {
			return time.Time{}, false
		}
		// Not a single Add: a Duration overflows after 292 years.
		return time.UnixMilli(after.UnixMilli() + steps*s.spec.every.Milliseconds()).UTC(), true
	}
	found, ok := s.Next(after)
	if !ok || found.After(until) {
		return time.Time{}, false
	}
	// Bisection: found is a slot, and there is none in (end, until].
	for end := until.Truncate(time.Second); end.After(found); {
		middle := found.Add(end.Sub(found) / 2).Truncate(time.Second)
		if slot, ok := s.Next(middle); ok && !slot.After(end) {
			found = slot
		} else {
			end = middle
		}
	}
	return found, true
}

// Count returns the number of slots in (after, until], or limit if there are more. It takes
// time proportional to the result. An @every schedule counts from after, as in Next.
func (s *Schedule) Count(after, until time.Time, limit int) int {
	after, until = clamp(after), clamp(until)
	if s.spec.every > 0 {
		return int(max(0, min(s.steps(after, until), int64(limit))))
	}
	n := 0
	for n < limit {
		slot, ok := s.Next(after)
		if !ok || slot.After(until) {
			break
		}
		after = slot
		n++
	}
	return n
}

// steps returns the number of whole intervals between the two times.
func (s *Schedule) steps(after, until time.Time) int64 {
	return (until.UnixMilli() - after.UnixMilli()) / s.spec.every.Milliseconds()
}

// clamp limits t to the years that have slots, and drops its monotonic reading, which would
// hide a step of the host's clock.
func clamp(t time.Time) time.Time {
	switch seconds := t.Unix(); { // Before and After overflow at the ends of int64
	case seconds < earliest.Unix():
		return earliest
	case seconds >= latest.Unix():
		return latest
	}
	return t.Round(0).UTC()
}
