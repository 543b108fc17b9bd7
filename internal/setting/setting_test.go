package setting_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// samples are values of kinds without words.
var samples = map[setting.Kind]string{
	setting.Text: "ada@example.org", setting.Duration: "1m30s", setting.Count: "7", setting.Size: "64KiB",
	setting.Instant: "2026-01-02T03:04:05.006Z", setting.Flag: "true",
}

// TestTables: defaults, words and samples are valid values of their settings, and are written as they are read.
func TestTables(t *testing.T) {
	hold(t, scheduler.Settings(), func(one []setting.Setting[scheduler.Schedule], text string) string {
		var s, again scheduler.Schedule
		args := map[string]any{}
		_ = one[0].Set(&s, text)
		setting.Args(one, &s, args)
		for _, value := range args { // a row has texts, and 0 for NULL
			if value == nil {
				value = 0
			}
			if err := setting.Load(one, &again, []string{fmt.Sprint(value)}); err != nil {
				t.Errorf("%s: %q is stored as %q: %v", one[0].Name, text, value, err)
			}
		}
		return one[0].Text(&again)
	})
	hold(t, admin.Settings(), func(one []setting.Setting[admin.Queue], text string) string {
		var q admin.Queue
		_ = one[0].Set(&q, text)
		return one[0].Text(&q)
	})
}

func hold[T any](t *testing.T, all []setting.Setting[T], stored func([]setting.Setting[T], string) string) {
	for i := range all {
		s := &all[i]
		for _, text := range append([]string{s.Usual, samples[s.Kind]}, s.Words...) {
			var v T
			if text == "" || s.Name == "poll_min" && text == samples[setting.Duration] {
				continue
			}
			if err := s.Set(&v, text); err != nil || s.Problem(&v) != "" && text != samples[setting.Text] && s.Kind != setting.Word {
				t.Errorf("%s: %q is refused: %v %s", s.Name, text, err, s.Problem(&v))
			}
			if got := s.Text(&v); got != text {
				t.Errorf("%s: %q is written as %q", s.Name, text, got)
			}
			if got := stored(all[i:i+1], text); got != text {
				t.Errorf("%s: %q is read from the row as %q", s.Name, text, got)
			}
		}
		if !unicode.IsUpper(rune(s.Help[0])) || !strings.HasSuffix(s.Help, ".") || s.Shape == "" {
			t.Errorf("%s: %q is not a sentence, or values have no shape", s.Name, s.Help)
		}
	}
}

// TestRefused: what is no value, and values out of bounds.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"stall", "10ms", "is less than 1s"},
		{"stall", "forever", "is not a duration"},
		{"stall", "-1s", "is negative"},
		{"keep_for", "0s", "is 0; use at least 1ms"},
		{"keep_for", "none", "is not a duration"},
		{"keep_for", "101w52w", "is not a duration"},
		{"retry_delay", "1us", "is less than a millisecond"},
		{"retry_delay", "40000d", "longer than 100 years"},
		{"max_attempts", "1001", "is not a number from 1 to 1000"},
		{"max_attempts", "+1", "is not a number"},
		{"keep_runs", "none", "is not a number from 1 to 1000000, or all"},
		{"keep_runs", "-1", "is not a number"},
		{"missed", "never", "is not known; use skip, once, all"},
		{"job_priority", "2", "is not known"},
		{"repeatable", "no", "is not true or false"},
		{"ends", "2026-11-20", "has no time of day"},
		{"ends", "1970-01-01T00:00:00Z", "is not in the years 1971 to 9998"},
		{"notify", "somebody", "is no target"},
	} {
		s := setting.Named(scheduler.Settings(), c.name)
		var v scheduler.Schedule
		err := s.Set(&v, c.text)
		if got := fmt.Sprint(err, s.Problem(&v)); !strings.Contains(got, c.want) {
			t.Errorf("%s %q: %s; want %q", c.name, c.text, got, c.want)
		}
	}
}
