package trouble

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

func TestAStandingErrorIsLoggedAgain(t *testing.T) {
	var log bytes.Buffer
	var at instant.Instant
	failing := New(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: withoutTime})), "claiming")
	failing.now = func() instant.Instant { return at }
	broken := errors.New("denied")
	for range 130 { // two minutes and ten seconds
		failing.Note(broken)
		at = at.Add(time.Second)
	}
	failing.Note(context.Canceled)
	if n := failing.Note(nil); n != 0 {
		t.Errorf("%d failures after a success", n)
	}
	failing.Note(nil)
	failing.Note(broken)
	want := []string{
		`level=WARN msg="claiming failed; will go on trying" err=denied`,
		`level=WARN msg="claiming still fails; will go on trying" err=denied failed=61 for=1m0s`,
		`level=WARN msg="claiming still fails; will go on trying" err=denied failed=121 for=2m0s`,
		`level=INFO msg="claiming: works again" failed=130 for=2m10s`,
		`level=WARN msg="claiming failed; will go on trying" err=denied`,
	}
	if got := strings.Split(strings.TrimSpace(log.String()), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log:\n%s\nwant\n%s", log.String(), strings.Join(want, "\n"))
	}
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func TestPausesGrow(t *testing.T) {
	failing := New(slog.New(slog.DiscardHandler), "claiming")
	for _, want := range []time.Duration{200, 400, 800, 1600, 3200, 3200} {
		if got := failing.Wait(errors.New("denied"), 0); got != want*time.Millisecond {
			t.Errorf("waits %v, want %v", got, want*time.Millisecond)
		}
	}
	if got := failing.Wait(nil, time.Hour); got != time.Hour {
		t.Errorf("after a success it waits %v", got)
	}
}
