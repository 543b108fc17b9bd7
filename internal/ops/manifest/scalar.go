package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// decimal matches accepted numbers: some read 010 as 8, and 1_000 as a text.
var decimal = regexp.MustCompile(`^-?(?:0|[1-9][0-9]{0,11})$`)

func (r *reader) readNumber(e entry) (int, bool) {
	v := e.value
	if !r.scalar(e.key, v, "a number") {
		return 0, false
	}
	if v.node.Tag == "!!int" && decimal.MatchString(v.node.Value) {
		n, err := strconv.Atoi(v.node.Value)
		return n, err == nil
	}
	r.fail(v.line, "%s is %s; write a whole number such as 3, without quotes", e.key, describe(v.node))
	return 0, false
}

func (r *reader) readSomeNumber(e entry) (int, bool) {
	n, ok := r.readNumber(e)
	if ok && n == 0 {
		r.fail(e.value.line, "%s is 0; use at least 1", e.key)
	}
	return n, ok && n != 0
}

func (r *reader) readFlag(e entry) (is, ok bool) {
	v := e.value
	if !r.scalar(e.key, v, "true or false") {
		return false, false
	}
	if v.node.Tag != "!!bool" {
		r.fail(v.line, "%s is %s; write true or false, without quotes", e.key, describe(v.node))
		return false, false
	}
	return strings.EqualFold(v.node.Value, "true"), true
}

func (r *reader) readDuration(e entry) (time.Duration, bool) {
	v := e.value
	if !r.scalar(e.key, v, "a duration") {
		return 0, false
	}
	if v.node.Tag != "!!str" {
		r.fail(v.line, "%s is %s; write a duration with its unit, such as 90s, 1h30m or 30d", e.key, describe(v.node))
		return 0, false
	}
	d, err := plain.ParseDuration(v.node.Value)
	switch {
	case err != nil:
		r.fail(v.line, "%s: %s", e.key, advised(err, "use a shorter one"))
	case d < 0:
		r.fail(v.line, "%s: %s is no duration; write for example 90s, 1h30m or 30d", e.key, quoted(v.node.Value))
	default:
		return d, true
	}
	return 0, false
}

// readSomeDuration refuses 0, which would mean that no duration is given.
func (r *reader) readSomeDuration(e entry) (time.Duration, bool) {
	d, ok := r.readDuration(e)
	if ok && d == 0 && !e.value.is("") {
		r.fail(e.value.line, "%s is 0; use at least 1ms", e.key)
		return 0, false
	}
	return d, ok
}

// advised adds advice to an error that has none.
func advised(err error, advice string) string {
	if strings.Contains(err.Error(), "; ") {
		return err.Error()
	}
	return err.Error() + "; " + advice
}

const instantAdvice = "write for example 2026-12-31T18:00:00+01:00, or 2026-12-31 18:00 for the time in the schedule's time zone"

// readInstant reads RFC 3339, or a date and time in the schedule's zone. It refuses a date
// alone: it would be unclear whether a schedule that ends on a day still runs on that day.
func (it *item) readInstant(e entry) (time.Time, bool) {
	v := e.value
	if !it.scalar(e.key, v, "a time") {
		return time.Time{}, false
	}
	text := v.node.Value
	if v.node.Tag == "!!str" && text == "" {
		return time.Time{}, true
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		if at.Nanosecond()%1e6 != 0 {
			it.fail(v.line, "%s: %s is finer than a millisecond; use at most three digits after the point", e.key, quoted(text))
			return time.Time{}, false
		}
		return at.UTC(), true
	}
	for _, layout := range []string{"2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		wall, err := time.Parse(layout, text)
		if err != nil || wall.Nanosecond() != 0 {
			continue
		}
		slots, err := cronspec.New("@daily", it.Zone, "")
		if err != nil {
			return time.Time{}, false // reported with time_zone
		}
		at, err := inZone(wall, slots.Location())
		if err != nil {
			it.fail(v.line, "%s: %s %v; write it with its offset, such as %s+01:00", e.key, quoted(text), err, wall.Format("2006-01-02T15:04:05"))
			return time.Time{}, false
		}
		return at, true
	}
	if _, err := time.Parse(time.DateOnly, text); err == nil {
		it.fail(v.line, "%s: %s has no time of day; write for example %s 00:00", e.key, quoted(text), text)
	} else {
		it.fail(v.line, "%s is %s; %s", e.key, describe(v.node), instantAdvice)
	}
	return time.Time{}, false
}

// inZone returns when the clocks of a zone show a wall time. They show some times twice and
// some never; package time then picks an instant without saying so.
func inZone(wall time.Time, zone *time.Location) (found time.Time, err error) {
	count := 0
	offsets := map[int]bool{}
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(near).In(zone).Zone()
		if offsets[offset] {
			continue
		}
		offsets[offset] = true
		at := wall.Add(-time.Duration(offset) * time.Second)
		if _, shown := at.In(zone).Zone(); shown == offset {
			found = at
			count++
		}
	}
	switch count {
	case 0:
		return found, fmt.Errorf("is never shown in %s, because the clocks are set forward", zone)
	case 1:
		return found, nil
	}
	return found, fmt.Errorf("is shown twice in %s, because the clocks are set back", zone)
}
