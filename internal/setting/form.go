package setting

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
)

// A Form is how the values of a field are written by people, and in a column. The zero value of a
// field either means something, such as none, or that there is no value.
type Form[V any] struct {
	kind  Kind
	shape string
	words []string

	zero    func(V) bool
	text    func(V) string // "" if there is no value
	parse   func(text string, zone *time.Location) (V, error)
	arg     func(V) any             // for a statement
	load    func(string) (V, error) // from a column, as text
	problem func(v V, may bool) string
}

// form returns a form of values that are compared with ==. may tells whether there may be no value.
func form[V comparable](kind Kind, shape string, text func(V) string, parse func(string) (V, error)) Form[V] {
	var none V
	return Form[V]{
		kind: kind, shape: shape, text: text,
		zero:    func(v V) bool { return v == none },
		parse:   func(text string, _ *time.Location) (V, error) { return parse(text) },
		arg:     func(v V) any { return v },
		load:    parse,
		problem: func(V, bool) string { return "" },
	}
}

// Plain is a text. The shape says for people what it is: a name, say.
func Plain(shape string) Form[string] {
	return form(Text, shape, func(s string) string { return s }, func(s string) (string, error) { return s, nil })
}

// Sentence is a line of text for people, of up to so many characters.
func Sentence(most int) Form[string] {
	f := Plain("text")
	f.problem = func(s string, _ bool) string {
		switch {
		case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
			return "is not a line of plain text"
		case utf8.RuneCountInString(s) > most:
			return fmt.Sprintf("has %d characters; use at most %d", utf8.RuneCountInString(s), most)
		}
		return ""
	}
	return f
}

// OneOf is one of several words.
func OneOf(words ...string) Form[string] {
	f := Plain(strings.Join(words, "|"))
	f.kind, f.words = Word, words
	f.problem = func(s string, _ bool) string {
		if slices.Contains(words, s) {
			return ""
		}
		return fmt.Sprintf("%q is not known; use %s", s, strings.Join(words, ", "))
	}
	return f
}

// Targets is who is notified: see package targets.
func Targets() Form[string] {
	f := Plain("targets")
	f.problem = func(text string, _ bool) string {
		if len(text) > maxTargets {
			return fmt.Sprintf("it is longer than %d bytes", maxTargets)
		}
		if _, err := address.ParseTargets(text); err != nil {
			return err.Error()
		}
		return ""
	}
	return f
}

// maxTargets is the greatest size of Targets, in bytes.
const maxTargets = 16_000

// Words in the place of a length of time. In Go they are 0 and -1.
const (
	none    = string(wire.None)
	forever = string(wire.Forever)
)

// Span is a length of time, or one of the words none and forever. Without none, 0 is no value.
func Span(words ...string) Form[time.Duration] {
	return SpanOf(time.Millisecond, plain.LongestDuration, words...)
}

// SpanOf is Span with other bounds.
func SpanOf(least, most time.Duration, words ...string) Form[time.Duration] {
	mayBeNone, mayBeForever := slices.Contains(words, none), slices.Contains(words, forever)
	f := form(Duration, strings.Join(append([]string{"duration"}, words...), "|"),
		func(d time.Duration) string {
			switch {
			case d < 0:
				return forever
			case d == 0 && mayBeNone:
				return none
			}
			return plain.FormatDuration(d)
		},
		func(text string) (time.Duration, error) {
			switch {
			case text == "", text == none && mayBeNone:
				return 0, nil
			case text == forever && mayBeForever:
				return -1, nil
			case strings.HasPrefix(text, "-"):
				return 0, fmt.Errorf("%q is negative", text)
			}
			d, err := plain.ParseDuration(text)
			if err == nil && d == 0 && !mayBeNone {
				err = fmt.Errorf("is 0; use at least %s", plain.FormatDuration(least))
			}
			return d, err
		})
	f.words = words
	f.arg = func(d time.Duration) any {
		if d < 0 {
			return forever
		}
		return plain.FormatDuration(d)
	}
	f.load = func(text string) (time.Duration, error) {
		if text == forever && mayBeForever {
			return -1, nil
		}
		return plain.ParseDuration(text)
	}
	f.problem = func(d time.Duration, may bool) string {
		switch {
		case d < 0 && !mayBeForever:
			return fmt.Sprintf("%v is negative", d)
		case d > most:
			return fmt.Sprintf("%v is longer than %s", d, longest(most))
		case d < 0, d == 0 && (mayBeNone || may):
			return ""
		case d < least:
			return fmt.Sprintf("%v is less than %s", d, shortest(least))
		}
		return ""
	}
	return f
}

func shortest(d time.Duration) string {
	if d == time.Millisecond {
		return "a millisecond"
	}
	return plain.FormatDuration(d)
}

func longest(d time.Duration) string {
	if d == plain.LongestDuration {
		return "100 years"
	}
	return plain.FormatDuration(d)
}

// Number is a number from 1 to most.
func Number(most int) Form[int] { return NumberOr("", 0, most) }

// NumberOr is a number from 1 to most, or a word, which means another number in Go and in the column.
func NumberOr(word string, means, most int) Form[int] {
	shape, or := "number", ""
	if word != "" {
		shape, or = shape+"|"+word, ", or "+word
	}
	f := form(Count, shape,
		func(n int) string {
			switch {
			case word != "" && (n == means || n < 0 && means < 0):
				return word
			case n == 0:
				return ""
			}
			return strconv.Itoa(n)
		},
		func(text string) (int, error) {
			if text == "" {
				return 0, nil
			}
			if text == word || text == "0" && word == none {
				return means, nil
			}
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > most || text[0] == '+' || text[0] == '0' {
				err = fmt.Errorf("%q is not a number from 1 to %d%s", text, most, or)
			}
			return n, err
		})
	if word != "" {
		f.words = []string{word}
	}
	f.load = strconv.Atoi
	f.problem = func(n int, may bool) string {
		if n >= 1 && n <= most || word != "" && n == means || n == 0 && may {
			return ""
		}
		return fmt.Sprintf("%d is not from 1 to %d%s", n, most, or)
	}
	return f
}

// Bytes is a size.
func Bytes() Form[int] {
	f := form(Size, "size", FormatSize, ParseSize)
	f.load = strconv.Atoi
	f.problem = func(n int, _ bool) string {
		if n < 1 || n > maxBytes {
			return fmt.Sprintf("%d is not 1 byte to 1 GiB", n)
		}
		return ""
	}
	return f
}

const maxBytes = 1 << 30

// Units of sizes, largest first.
var sizeUnits = []struct {
	name string
	is   int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// FormatSize formats a number of bytes, as 64KiB if it is a whole number of these.
func FormatSize(n int) string {
	for _, unit := range sizeUnits {
		if n >= unit.is && n%unit.is == 0 {
			return strconv.Itoa(n/unit.is) + unit.name
		}
	}
	return strconv.Itoa(n)
}

// ParseSize is the inverse of FormatSize.
func ParseSize(text string) (int, error) {
	count, times := text, 1
	for _, unit := range sizeUnits {
		if before, found := strings.CutSuffix(text, unit.name); found {
			count, times = before, unit.is
		}
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxBytes/times {
		return 0, fmt.Errorf("%q is not a size from 1 byte to 1GiB; write for example 65536, 64KiB or 4MiB", text)
	}
	return n * times, nil
}

// Bool is true or false. The column has yes or no.
func Bool() Form[bool] { return boolean(false) }

// Opposite is a Bool whose field has the opposite meaning, so that the default, true, is its zero value.
func Opposite() Form[bool] { return boolean(true) }

func boolean(opposite bool) Form[bool] {
	f := form(Flag, "true|false",
		func(is bool) string { return strconv.FormatBool(is != opposite) },
		func(text string) (bool, error) {
			switch text {
			case "":
				return false, nil
			case "true", "false":
				return (text == "true") != opposite, nil
			}
			return false, fmt.Errorf("%q is not true or false", text)
		})
	f.arg = func(is bool) any { return map[bool]string{false: "no", true: "yes"}[is != opposite] }
	f.load = func(text string) (bool, error) { return (text == "yes") != opposite, nil }
	return f
}

// Urgency is a job's priority.
func Urgency() Form[int] {
	f := form(Priority, "urgent|normal|low|idle", wire.PriorityName, func(text string) (int, error) {
		if text == "" {
			return 0, nil
		}
		return wire.ParsePriority(text)
	})
	f.words, f.load = strings.Split(f.shape, "|"), strconv.Atoi
	return f
}

// Moment is a time. The column has µs since 1970, or NULL.
func Moment() Form[time.Time] {
	return Form[time.Time]{
		kind: Instant, shape: "time",
		zero: time.Time.IsZero,
		text: func(at time.Time) string {
			if at.IsZero() {
				return ""
			}
			return at.UTC().Format(time.RFC3339Nano)
		},
		parse: func(text string, zone *time.Location) (time.Time, error) {
			if text == "" {
				return time.Time{}, nil
			}
			at, day, err := ParseTime(text, zone)
			if err == nil && day {
				err = fmt.Errorf("%q has no time of day; write for example %sT00:00", text, text)
			}
			return at, err
		},
		arg: func(at time.Time) any {
			if at.IsZero() {
				return nil
			}
			return at.UnixMicro()
		},
		load: func(text string) (time.Time, error) {
			us, err := strconv.ParseInt(text, 10, 64)
			if us == 0 {
				return time.Time{}, err
			}
			return time.UnixMicro(us).UTC(), err
		},
		problem: func(at time.Time, _ bool) string {
			if !at.IsZero() && (at.Year() < 1971 || at.Year() > 9998) {
				return at.Format(time.RFC3339) + " is not in the years 1971 to 9998"
			}
			return ""
		},
	}
}

// Pairs are texts by name. The column has them as a JSON object.
func Pairs() Form[map[string]string] {
	return Form[map[string]string]{
		kind:  Texts,
		zero:  func(m map[string]string) bool { return len(m) == 0 },
		text:  object,
		parse: func(text string, _ *time.Location) (map[string]string, error) { return readObject(text) },
		arg:   func(m map[string]string) any { return object(m) },
		load:  readObject, problem: func(map[string]string, bool) string { return "" },
	}
}

// object encodes a map as JSON with sorted keys.
func object(m map[string]string) string {
	if len(m) == 0 {
		return "{}"
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "{}" // strings always encode
	}
	return string(text)
}

func readObject(text string) (m map[string]string, err error) {
	if text == "{}" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("is not a JSON object of strings: %w", plain.JSONError(err))
	}
	return m, nil
}

// ParseTime parses RFC 3339, or a date with or without a time of day in a zone. day reports that there was no time
// of day.
func ParseTime(text string, zone *time.Location) (at time.Time, day bool, err error) {
	if at, err = time.Parse(time.RFC3339, text); err == nil {
		return at.Truncate(time.Millisecond).UTC(), false, nil // SQLite's precision
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateTime, time.DateOnly} {
		if wall, err := time.Parse(layout, text); err == nil {
			at, err = onClocks(wall, zone)
			if layout == time.DateOnly && err != nil {
				at, err = time.ParseInLocation(layout, text, zone) // some days begin at 01:00, and some twice
			}
			return at, layout == time.DateOnly, err
		}
	}
	return at, false, fmt.Errorf("%q is not a time such as 2026-11-20T18:00 or 2026-11-20T18:00:00Z", text)
}

// onClocks returns when the clocks of a zone show a wall time. Some are shown twice and some never, and package
// time picks an instant silently.
func onClocks(wall time.Time, zone *time.Location) (at time.Time, err error) {
	found := map[int64]bool{}
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(near).In(zone).Zone()
		try := wall.Add(-time.Duration(offset) * time.Second)
		if _, shows := try.In(zone).Zone(); shows == offset {
			at = try
			found[try.Unix()] = true
		}
	}
	if len(found) == 1 {
		return at, nil
	}
	often := map[int]string{0: "never", 2: "twice"}[len(found)]
	return at, fmt.Errorf("the clocks of %s show %s %s; write it with its offset, such as %s+01:00",
		zone, wall.Format(time.DateTime), often, wall.Format("2006-01-02T15:04:05"))
}
