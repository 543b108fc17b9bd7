package plain

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/pattern"
)

// LongestDuration is the longest duration that ParseDuration accepts.
const LongestDuration = 100 * 365 * 24 * time.Hour

// ParseDuration parses a duration. The syntax is Go's without a sign, plus days of 24 hours and weeks of 7 days:
// 500ms, 90s, 1h30m, 30d, 1w. The empty text is 0.
func ParseDuration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	var total time.Duration
	rest := text
	for _, unit := range []struct {
		letter string
		is     time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		count, after, found := strings.Cut(rest, unit.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(count, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // with which it is the largest number
			return 0, notDuration(text)
		}
		n = min(n, uint64(LongestDuration/unit.is)+1) // anything larger is refused anyway
		total, rest = min(total+time.Duration(n)*unit.is, LongestDuration+1), after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		switch {
		case rest[0] == '+' || rest[0] == '-':
			return 0, notDuration(text)
		case err != nil && tooLong().MatchString(rest):
			d = LongestDuration + 1
		case err != nil:
			return 0, notDuration(text)
		}
		total += min(d, LongestDuration+1)
	}
	if total > LongestDuration {
		return 0, fmt.Errorf("%q is longer than 100 years", text)
	}
	return total, nil
}

// tooLong matches what package time refuses only because it is too long: 292 years or more.
var tooLong = pattern.Lazy(`^(?:[0-9]+(?:\.[0-9]*)?(?:ns|us|µs|ms|s|m|h))+$`)

func notDuration(text string) error {
	return fmt.Errorf("%q is not a duration; write for example 500ms, 90s, 1h30m or 30d", text)
}

// FormatDuration formats a duration in the syntax of ParseDuration, in few characters: 30d, 1h30m; 90s becomes 1m30s. 0
// becomes the empty text.
func FormatDuration(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	const day = 24 * time.Hour
	var b strings.Builder
	if days := d / day; days > 0 {
		fmt.Fprintf(&b, "%dd", days)
		d -= days * day
	}
	if d == 0 {
		return b.String()
	}
	text := d.String() // 1h30m0s
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	b.WriteString(text)
	return b.String()
}
