package cronspec

import (
	"fmt"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones resolve on hosts without a zone database
)

// A DST is a rule for slots when the clocks change.
type DST string

const (
	// Vixie is the default: what cron(8) of vixie cron says. A spec with a fixed time of day
	// (neither minute nor hour begins with *) runs exactly once across a change: what is
	// skipped runs once when the gap ends, and a repeated time runs the first time it
	// is shown. Debian's cron 3.0pl1-162 runs a line as often as it has times in the gap.
	// Other specs follow the wall clock, and so does every spec when the clocks change by more than three hours.
	Vixie DST = "vixie"

	// Wall means that slots are exactly the instants at which the wall clock shows
	// them: none in a gap, two in an hour that repeats.
	Wall DST = "wall"
)

// maxShift is the largest change of the clocks that the Vixie rule compensates. A larger one
// moves the date line, and the skipped days did not happen.
const maxShift = 3 * time.Hour

// ParseDST returns the rule called name; "" is the default. Its error wraps
// ErrInvalid.
func ParseDST(name string) (DST, error) {
	switch dst := DST(name); dst {
	case "":
		return Vixie, nil
	case Vixie, Wall:
		return dst, nil
	}
	return "", fmt.Errorf("%w: DST rule %+q is unknown; use vixie or wall", ErrInvalid, clip(name))
}

// locations caches zones: loading one costs more than using it. Only names that exist get in,
// so the cache stays small.
var locations sync.Map // string → *time.Location

func loadZone(name string) (*time.Location, error) {
	if known, ok := locations.Load(name); ok {
		return known.(*time.Location), nil
	}
	lower := strings.ToLower(name)
	switch {
	case lower == "local" || lower == "localtime" || lower == "posixrules":
		return nil, fmt.Errorf("%w: time zone %+q differs between hosts; use a name such as Europe/Berlin, or UTC",
			ErrInvalid, name)
	case strings.HasPrefix(lower, "right/") || strings.HasPrefix(lower, "posix/"):
		return nil, fmt.Errorf("%w: time zone %+q exists on some hosts only; leave out %q",
			ErrInvalid, clip(name), name[:6])
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%w: time zone %+q is unknown; use a name such as Europe/Berlin, or UTC",
			ErrInvalid, clip(name))
	}
	locations.Store(name, loc)
	return loc, nil
}

// clip shortens text for error messages.
func clip(s string) string {
	if len(s) > maxLength {
		return s[:maxLength] + "..."
	}
	return s
}

// A segment is a stretch of time with one offset from UTC. Neighbours can have
// the same offset. A zero start or end means that there is none.
type segment struct {
	start, end time.Time
	offset     time.Duration
}

func segmentAt(t time.Time, loc *time.Location) segment {
	local := t.In(loc)
	_, seconds := local.Zone()
	start, end := local.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// Beyond the zone's table, the time package takes each year to have 365
		// days: on 31 December of a leap year it returns an end in the past. The
		// offset is right, and no zone changes its clocks on that day.
		end = t.Truncate(time.Hour).Add(time.Hour)
	}
	return segment{start.UTC(), end.UTC(), time.Duration(seconds) * time.Second}
}

// shown returns the wall time up to which everything was shown before t, because the clocks
// were set back in the last hours. It is zero if they were not.
func (seg segment) shown(t time.Time, loc *time.Location) time.Time {
	var until time.Time
	for !seg.start.IsZero() && t.Sub(seg.start) < maxShift {
		before := segmentAt(seg.start.Add(-time.Nanosecond), loc)
		back := before.offset - seg.offset
		if back.Abs() > maxShift || !before.start.Before(seg.start) {
			break
		}
		if wall := seg.start.Add(before.offset); back > 0 && wall.After(until) {
			until = wall
		}
		seg = before
	}
	return until
}
