// Package plain has the texts that people read and write, in pages, command lines, files and errors: numbers,
// durations, rates, text from anybody, errors of JSON, and the known word that a mistyped one resembles.
package plain

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Number formats a number with separated thousands.
func Number[T int | int64](n T) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Count formats a number that was counted up to a limit.
func Count(n, limit int) string {
	if limit > 0 && n >= limit {
		return Number(limit) + "+"
	}
	return Number(n)
}

// Plural formats a number of things: 1 job, 2 jobs.
func Plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + more
}

// Rate formats a number of things per minute. A negative one is unknown.
func Rate(perMinute float64) string {
	switch {
	case perMinute < 0:
		return "–"
	case perMinute == 0 || perMinute >= 9.95:
		return Number(int64(perMinute + 0.5))
	}
	return strconv.FormatFloat(max(0.1, perMinute), 'f', 1, 64)
}

// Span formats a duration in its two largest units.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + "s"
	}
	d = d.Round(time.Second)
	units := []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.of, u.name)
		if i+1 < len(units) {
			if rest := d % u.of / units[i+1].of; rest > 0 {
				text += fmt.Sprintf(" %d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "0s"
}

// Cut returns text on one line, cut to so many characters.
func Cut(text string, limit int) string {
	text = strings.Join(strings.Fields(Clean(text)), " ")
	if r := []rune(text); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return text
}

// Instant formats an instant with its wall time, or in UTC if the zone's offset has seconds, as local mean times do:
// RFC 3339 cannot express these.
func Instant(t time.Time, zone *time.Location) string {
	local := t.In(zone)
	if _, offset := local.Zone(); offset%60 != 0 {
		local = t.UTC()
	}
	return local.Format(time.RFC3339)
}

// Line cuts text to its first line and to a width, without control characters.
func Line(s string, width int) string {
	line, rest, more := strings.Cut(strings.TrimSpace(s), "\n")
	line = strings.ReplaceAll(Harmless(line), "\t", " ")
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	if more && strings.TrimSpace(rest) != "" {
		line += " …"
	}
	return line
}

// LastLine is Line of the last line that has a text: of what a command has written, the one that says how it went.
func LastLine(s string, width int) string {
	s = strings.TrimSpace(s)
	return Line(s[strings.LastIndexByte(s, '\n')+1:], width)
}

// Harmless returns text that is safe for a terminal.
func Harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// Clean makes text show what it is: it writes invisible characters, and those that change the direction of
// text, as their numbers.
func Clean(text string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(text, "�") {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == '\r':
		case unicode.IsControl(r) || unicode.In(r, unicode.Cf) && r != '\u200d':
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// URL returns a URL without its query and user, which may be secret.
func URL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	more := ""
	if u.RawQuery != "" {
		more = "?…"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return Clean(u.String() + more)
}
