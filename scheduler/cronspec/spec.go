// Package cronspec interprets cron specs: which instants a spec names, in which time zone,
// and what happens when the clocks change.
//
// Everything here is a pure function of its arguments. Nothing reads the clock.
//
// A spec has the five fields of crontab(5): minute, hour, day of month, month
// and day of week. There are no seconds. Or it is one of @hourly, @daily,
// @midnight, @weekly, @monthly, @yearly, @annually, or "@every DURATION".
//
// Days follow cron(8): a field that begins with "*", such as "*/2", counts as a star. If the
// day of month or the day of week is a star, a day must match both fields; otherwise it must
// match at least one.
package cronspec

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// ErrInvalid means that a spec, a zone or a DST rule is refused. The wrapping error is one line
// that says what is wrong, where, and what to do.
var ErrInvalid = errors.New("invalid schedule")

const (
	maxLength = 256
	maxEvery  = 366 * 24 * time.Hour

	// 29 February on a given weekday can be 40 years away, across 2100.
	searchYears = 40

	// The top bit tells robfig/cron that a day field is a star.
	starBit = 1 << 63
)

var macros = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// manual is the spec of a schedule that runs only on request.
const manual = "@manual"

// reboot is the spec of what runs once after each start of a host.
const reboot = "@reboot"

// A Spec is a validated cron spec. It knows wall time only, and has no zone.
type Spec struct {
	text  string
	every time.Duration      // of an @every spec, else 0
	never bool               // @manual or @reboot
	cron  *cron.SpecSchedule // all other specs; in UTC, so that it serves as a plain calendar
	fixed bool               // neither minute nor hour begins with *: a time of day, not an interval
}

// Parse parses a spec. It refuses one that cannot fire within 40 years, such as 30 February.
// Its errors wrap ErrInvalid.
//
// Blanks around the spec are ignored. A step must not be larger than the number
// of values that it steps over: "*/60" is a legal minute, "*/61" is not. "5/10"
// means "5-59/10". Sunday is 0 or 7, also as the end of a range: 5-7, fri-sun.
// "@every" takes whole seconds, from 1s to 366 days, as Go writes durations.
func Parse(text string) (Spec, error) {
	spec, err := parse(text)
	switch {
	case err == nil:
		return spec, nil
	case len(text) > maxLength:
		return Spec{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return Spec{}, fmt.Errorf("%w: spec %+q: %w", ErrInvalid, text, err)
}

// String returns the spec as it was written, with single spaces.
func (s Spec) String() string { return s.text }

// Manual reports whether the spec is @manual or @reboot, which have no slots.
func (s Spec) Manual() bool { return s.never }

// Reboot reports whether the spec is @reboot: it has no slots, and what it runs is due when a host has started.
func (s Spec) Reboot() bool { return s.text == reboot }

// Every returns the interval of an @every spec, and 0 for all others.
func (s Spec) Every() time.Duration { return s.every }

// EitherDay reports whether both day fields are set, so that a day is one of the spec's if it is in either.
func (s Spec) EitherDay() bool { return s.cron != nil && (s.cron.Dom|s.cron.Dow)&starBit == 0 }

func parse(text string) (Spec, error) {
	if err := checkText(text); err != nil {
		return Spec{}, err
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return Spec{}, errors.New("it is empty; write five fields such as 0 9 * * 1-5, or a macro such as @daily")
	}
	spec := Spec{text: strings.Join(words, " ")}
	upper := strings.ToUpper(words[0])
	switch {
	case strings.HasPrefix(upper, "TZ=") || strings.HasPrefix(upper, "CRON_TZ="):
		return Spec{}, fmt.Errorf("%q does not belong in a spec; the zone is set separately, with --time-zone or time_zone",
			words[0])
	case len(words) == 1 && strings.EqualFold(words[0], manual):
		return Spec{text: manual, never: true}, nil
	case len(words) == 1 && strings.EqualFold(words[0], reboot):
		return Spec{text: reboot, never: true}, nil
	case words[0][0] == '@':
		fields, every, err := macro(words)
		if err != nil {
			return Spec{}, err
		}
		if every > 0 {
			spec.every = every
			return spec, nil
		}
		words = fields
	}
	if len(words) != len(fields) {
		plural := "s"
		if len(words) == 1 {
			plural = ""
		}
		return Spec{}, fmt.Errorf("%d field%s; write five: minute, hour, day of month, month, day of week (no seconds, no year)%s",
			len(words), plural, advice(words))
	}
	if strings.Contains(spec.text, "$") {
		return Spec{}, errors.New("a variable is not expanded in a spec; write its value")
	}
	return spec.withFields(words)
}

func checkText(text string) error {
	if len(text) > maxLength {
		return fmt.Errorf("the spec has %d bytes; use at most %d", len(text), maxLength)
	}
	for _, r := range text {
		switch {
		case r == '\t':
		case r < ' ' || r == 0x7f:
			return fmt.Errorf("it holds the control character %+q; use plain text on one line", r)
		case r > 0x7f:
			return fmt.Errorf("it holds %+q, which is not ASCII; use digits, English names, * , - and /", r)
		}
	}
	return nil
}

// macro returns the fields that a macro stands for, or the interval of @every.
func macro(words []string) (fields []string, every time.Duration, err error) {
	name := strings.ToLower(words[0])
	switch fields := macros[name]; {
	case name == "@every":
		every, err = interval(words[1:])
		return nil, every, err
	case (name == reboot || name == manual) && len(words) > 1:
		return nil, 0, fmt.Errorf("%q follows %s; a macro stands alone", words[1], words[0])
	case fields == "":
		return nil, 0, fmt.Errorf("unknown macro %q; use @hourly, @daily, @midnight, @weekly, @monthly, @yearly, "+
			"@annually, @every, @reboot or @manual", words[0])
	case len(words) > 1:
		return nil, 0, fmt.Errorf("%q follows %s; a macro stands alone", words[1], words[0])
	default:
		return strings.Fields(fields), 0, nil
	}
}

func interval(words []string) (time.Duration, error) {
	if len(words) != 1 {
		return 0, errors.New("@every takes one duration; write for example @every 1h30m")
	}
	d, err := time.ParseDuration(words[0])
	switch {
	case err != nil || strings.ContainsAny(words[0], "+-"):
		return 0, fmt.Errorf("@every: %q is not a duration; write for example 90s, 15m or 1h30m (units h, m, s; no sign)",
			words[0])
	case d < time.Second || d > maxEvery:
		return 0, fmt.Errorf("@every: %q is out of range; use 1s to 8784h (366 days)", words[0])
	case d%time.Second != 0:
		return 0, fmt.Errorf("@every: %q has a fraction of a second; use whole seconds", words[0])
	}
	return d, nil
}

// withFields passes validated numeric fields to the library, and then decides by itself which
// day field is a star: the library does not count "*/2" as one.
func (s Spec) withFields(words []string) (Spec, error) {
	plain := make([]string, len(fields))
	for i := range fields {
		var err error
		if plain[i], err = fields[i].parse(words[i]); err != nil {
			return Spec{}, err
		}
	}
	parsed, err := parseRobfig(strings.Join(plain, " "))
	if err != nil {
		return Spec{}, err
	}
	for _, mask := range []*uint64{&parsed.Minute, &parsed.Hour, &parsed.Dom, &parsed.Month, &parsed.Dow} {
		*mask &^= starBit
		if *mask == 0 {
			return Spec{}, errors.New("a field has no value; write * for all values")
		}
	}
	if words[2][0] == '*' {
		parsed.Dom |= starBit
	}
	if words[4][0] == '*' {
		parsed.Dow |= starBit
	}
	s.cron = parsed
	s.fixed = words[0][0] != '*' && words[1][0] != '*'
	if _, ok := s.next(probeFrom); !ok {
		return Spec{}, fmt.Errorf("it never fires: no day matches %s %s %s (day of month, month, day of week); correct these fields",
			words[2], words[3], words[4])
	}
	return s, nil
}

// parseRobfig calls the parser and recovers from its panics.
func parseRobfig(text string) (parsed *cron.SpecSchedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			parsed, err = nil, fmt.Errorf("the parser stopped: %q; simplify the spec", fmt.Sprint(p))
		}
	}()
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the parser says %q; simplify the spec", err.Error())
	}
	parsed, ok := schedule.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("not five fields; simplify the spec")
	}
	parsed.Location = time.UTC
	return parsed, nil
}

// next returns the first wall time after the given one that matches. Wall times
// are labelled UTC, where each day has 24 hours. The library gives up after
// five years, hence the loop.
func (s Spec) next(wall time.Time) (found time.Time, ok bool) {
	defer func() {
		if recover() != nil {
			found, ok = time.Time{}, false
		}
	}()
	last := wall.Year() + searchYears
	for wall.Year() <= last {
		if found := s.cron.Next(wall); !found.IsZero() {
			return found, found.Year() <= last
		}
		wall = time.Date(wall.Year()+6, time.January, 1, 0, 0, 0, 0, time.UTC).Add(-time.Nanosecond)
	}
	return time.Time{}, false
}
