package plain

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits of a rate.
const (
	MaxRate    = 100_000              // jobs
	MaxRatePer = 366 * 24 * time.Hour // in which they begin
)

// ParseRate parses a rate such as 100/s, 5/1m30s or 1/1h: a number of jobs and a period.
func ParseRate(text string) (n int, per time.Duration, err error) {
	number, span, ok := strings.Cut(text, "/")
	n, err = strconv.Atoi(number)
	if !ok || err != nil || strings.HasPrefix(number, "+") {
		return 0, 0, fmt.Errorf("%q is not a number of jobs, a slash and a time, such as 100/s or 5/1m30s", text)
	}
	if n < 1 || n > MaxRate {
		return 0, 0, fmt.Errorf("%d is not 1 to %d jobs", n, MaxRate)
	}
	if strings.Trim(span, "smhdw") == "" && span != "" {
		span = "1" + span
	}
	if per, err = ParseDuration(span); err == nil && (per < time.Millisecond || per > MaxRatePer) {
		err = fmt.Errorf("%v is not 1ms to 366 days", per)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%q: %w", text, err)
	}
	return n, per, nil
}

// FormatRate formats a rate as ParseRate parses it.
func FormatRate(n int, per time.Duration) string {
	span := FormatDuration(per)
	if len(span) == 2 {
		span = strings.TrimPrefix(span, "1")
	}
	return strconv.Itoa(n) + "/" + span
}
