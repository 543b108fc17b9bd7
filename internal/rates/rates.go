// Package rates parses and formats rates of jobs, such as 100/s.
package rates

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/duration"
)

// Limits of a rate.
const (
	Max    = 100_000              // jobs
	MaxPer = 366 * 24 * time.Hour // in which they begin
)

// Parse parses a rate such as 100/s, 5/1m30s or 1/1h: a number of jobs and a period.
func Parse(text string) (n int, per time.Duration, err error) {
	number, span, ok := strings.Cut(text, "/")
	n, err = strconv.Atoi(number)
	if !ok || err != nil || strings.HasPrefix(number, "+") {
		return 0, 0, fmt.Errorf("%q is not a number of jobs, a slash and a time, such as 100/s or 5/1m30s", text)
	}
	if n < 1 || n > Max {
		return 0, 0, fmt.Errorf("%d is not 1 to %d jobs", n, Max)
	}
	if strings.Trim(span, "smhdw") == "" && span != "" {
		span = "1" + span
	}
	if per, err = duration.Parse(span); err == nil && (per < time.Millisecond || per > MaxPer) {
		err = fmt.Errorf("%v is not 1ms to 366 days", per)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%q: %w", text, err)
	}
	return n, per, nil
}

// Format formats a rate as Parse parses it.
func Format(n int, per time.Duration) string {
	span := duration.Format(per)
	if len(span) == 2 {
		span = strings.TrimPrefix(span, "1")
	}
	return strconv.Itoa(n) + "/" + span
}
