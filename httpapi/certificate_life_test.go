package httpapi

import (
	"strings"
	"testing"
	"time"
)

// A certificate is spoken of two weeks before its end, or a sixth of its life if that is shorter.
func TestTheLifeOfACertificate(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	hours := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	for name, c := range map[string]struct {
		is    life
		words string
	}{
		"of 90 days, 15 left":      {life{hours(-75 * 24), hours(15 * 24)}, ""},
		"of 90 days, 13 left":      {life{hours(-77 * 24), hours(13 * 24)}, "ends at 2026-01-23 00:00 UTC"},
		"of a day, 5 hours left":   {life{hours(-19), hours(5)}, ""},
		"of a day, 3 hours left":   {life{hours(-21), hours(3)}, "ends at 2026-01-10 03:00 UTC"},
		"that ends now":            {life{hours(-24), now}, "has ended at 2026-01-10 00:00 UTC"},
		"that ended years ago":     {life{hours(-30000), hours(-20000)}, "has ended"},
		"of a hundred years, 50 y": {life{hours(-50 * 365 * 24), hours(50 * 365 * 24)}, ""},
	} {
		if got := c.is.trouble(now); c.words == "" && got != "" || !strings.Contains(got, c.words) {
			t.Errorf("%s: %q, want %q", name, got, c.words)
		}
	}
}
