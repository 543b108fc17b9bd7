package plain

import (
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	type rate struct {
		n   int
		per time.Duration
	}
	for text, want := range map[string]rate{
		"100/s": {100, time.Second}, "5/1m30s": {5, 90 * time.Second}, "1/h": {1, time.Hour},
		"2/d": {2, 24 * time.Hour}, "7/500ms": {7, 500 * time.Millisecond}, "3/1ms": {3, time.Millisecond},
	} {
		n, per, err := ParseRate(text)
		if err != nil || n != want.n || per != want.per {
			t.Errorf("%q: %d, %v, %v", text, n, per, err)
		}
		if n, again, err := ParseRate(FormatRate(n, per)); err != nil || n != want.n || again != per {
			t.Errorf("%q again: %q", text, FormatRate(n, per))
		}
	}
	for _, bad := range []string{
		"", "5", "/s", "5/", "0/s", "-1/s", "+1/s", "x/s", "1/x", "1/0s", "100001/s",
		"1/-1s", "1/2y", "1.5/s", "1/s/s", "1/9000d",
	} {
		if _, _, err := ParseRate(bad); err == nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzParse: what is read is within the limits, and is read again as it is written.
func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"100/s", "5/1m30s", "1/h", "1/", "x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, per, err := ParseRate(text)
		if err != nil {
			return
		}
		if n < 1 || n > MaxRate || per < time.Millisecond || per > MaxRatePer {
			t.Errorf("%q is %d in %v", text, n, per)
		}
		if n2, per2, err := ParseRate(FormatRate(n, per)); err != nil || n2 != n || per2 != per {
			t.Errorf("%q is %d in %v, written %q", text, n, per, FormatRate(n, per))
		}
	})
}
