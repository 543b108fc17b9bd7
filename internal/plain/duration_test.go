package plain

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "0s": 0, "500ms": 500 * time.Millisecond, "1.5h": 90 * time.Minute, "90s": 90 * time.Second,
		"1h30m": 90 * time.Minute, "30d": 30 * day, "1w": 7 * day, "1w2d": 9 * day, "2d12h": 60 * time.Hour, "1w1h": 169 * time.Hour,
		"0d": 0, "36500d": 36500 * day, "5214w2d": 36500 * day, "876000h": 36500 * day, "7µs": 7 * time.Microsecond, "7us": 7 * time.Microsecond,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"1", "x", "-1s", "+1s", " 1s", "1s ", "1 s", "d", "1d2w", "1.5d", "1d1", "1h1d", "1D", "1m2d", "١s",
		"36501d", "876001h", "36500d1ns", "99999w", "100000d", "9999999999h", "1w" + "99999999999999999999s",
	} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// What is too long is called that, however long it is: also what no number holds.
func TestParseDurationTooLong(t *testing.T) {
	for _, text := range []string{
		"36501d", "106751d", "106752d", "65536d", "99999999999999999999d", "30501w", "2562048h", "99999999999999999999s", "1d9999999999999h", "9e9h",
	} {
		_, err := ParseDuration(text)
		want := strconv.Quote(text) + " is longer than 100 years"
		if text == "9e9h" {
			want = strconv.Quote(text) + " is not a duration; write for example 500ms, 90s, 1h30m or 30d"
		}
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Weeks and days together may be more than a Duration can hold; a negative one
// would mean for ever for keep_for.
func TestParseDurationOfTooManyWeeksAndDays(t *testing.T) {
	for _, text := range []string{"9999w99999d", "9999w99999d1h", "9000w99000d", "30501w", "15300w", "65535d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// What Format writes, Parse reads, for all that a schedule may
// hold; and what it reads is never negative nor longer than 100 years.
func TestDurations(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{
			1, time.Microsecond, time.Millisecond, time.Second, time.Minute,
			time.Hour, 24 * time.Hour,
		}).Draw(r, "unit")
		d := min(LongestDuration, unit*time.Duration(rapid.Int64Range(0, int64(LongestDuration/unit)).Draw(r, "n")))
		text := FormatDuration(d)
		if got, err := ParseDuration(text); err != nil || got != d {
			r.Errorf("%v is written %q, and read as %v, %v", d, text, got, err)
		}
		if (text == "") != (d == 0) || len(text) > 32 {
			r.Errorf("%v is written %q", d, text) // a column holds 32
		}
	})
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringMatching(`([0-9]{1,3}w)?([0-9]{1,5}d)?([0-9]{1,7}h)?([0-9]{1,5}m)?([0-9]{0,3}(s|ms)?)?`).Draw(r, "text")
		if got, err := ParseDuration(text); err == nil && (got < 0 || got > LongestDuration) {
			r.Errorf("%q is %v", text, got)
		}
	})
}

func TestFormatDuration(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "", -1: "", 30 * day: "30d", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", time.Hour: "1h", 10 * time.Minute: "10m",
		20 * time.Hour: "20h", day + time.Minute: "1d1m", 25 * time.Hour: "1d1h", time.Hour + 5*time.Second: "1h0m5s",
		1500 * time.Millisecond: "1.5s",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%v: got %q, want %q", int64(d), got, want)
		}
	}
}
