package push

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"0": 0, " 7 ": 7 * time.Second, "99999999": longestRetryAfter, "Sun, 22 Nov 2026 12:01:00 GMT": time.Minute,
		"Sun, 22 Nov 2026 11:00:00 GMT": 0,
		"":                              -1, "-1": -1, "1.5": -1, "soon": -1, "99999999999999999999": -1,
	} {
		d, ok := retryAfter(http.Header{"Retry-After": {text}}, now)
		if ok != (want >= 0) || ok && d != want {
			t.Errorf("%q: %v %v", text, d, ok)
		}
	}
	// Its own clock counts, not ours.
	d, _ := retryAfter(http.Header{"Retry-After": {"Sun, 22 Nov 2026 12:01:00 GMT"}, "Date": {"Sun, 22 Nov 2026 12:00:50 GMT"}}, now)
	if d != 10*time.Second {
		t.Errorf("by its own clock it is %v", d)
	}
}

// Whatever an endpoint answers, it makes something of its job, and no panic.
func FuzzAnswer(f *testing.F) {
	f.Add(200, `{"status":"failure","message":"x"}`, "7", "true")
	f.Add(429, "", "Sun, 22 Nov 2026 12:01:00 GMT", "")
	f.Add(999, "\x00\xff", "-1", "TRUE")
	f.Fuzz(func(t *testing.T, status int, body, after, noRetry string) {
		h := http.Header{"Retry-After": {after}, headerNoRetry: {noRetry}}
		a, err := readAnswer(&http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))})
		must(t, err)
		err = a.outcome(time.Unix(0, 0))
		if err == nil && (status < 200 || status > 299) {
			t.Errorf("HTTP %d is a success", status)
		}
		if err != nil && (len(err.Error()) > longestAnswer+200 || strings.TrimFunc(err.Error(), unicode.IsSpace) == "") {
			t.Errorf("its error has %d bytes", len(err.Error()))
		}
	})
}

func FuzzHeaderText(f *testing.F) {
	f.Add("größe: 50 %")
	f.Fuzz(func(t *testing.T, name string) {
		for _, c := range []byte(headerText(name)) {
			if c <= ' ' || c > '~' {
				t.Errorf("%q has %q", name, c)
			}
		}
	})
}
