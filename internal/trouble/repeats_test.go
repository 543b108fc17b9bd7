package trouble

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines keeps what is logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, strings.TrimSpace(string(p)))
	return len(p), nil
}

func (l *lines) got() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.all...)
}

func repeats(out io.Writer, every time.Duration) *Repeats {
	r := NewRepeats(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	r.every = every
	return r
}

// The same failure of many jobs is a line, and a further one that says how often it came again.
func TestRepeats(t *testing.T) {
	var out lines
	r := repeats(&out, time.Hour)
	for i := range 10_000 {
		r.Log(slog.LevelInfo, fmt.Sprintf("q k no host %d", i), "job failed", "id", i)
	}
	r.Log(slog.LevelWarn, "q k no host 1", "job failed", "id", 7) // is another one
	r.Log(slog.LevelInfo, "q k no room", "job failed", "id", 8)
	r.Flush()
	r.Flush()
	r.Log(slog.LevelInfo, "q k no host 1", "job failed", "id", 9)
	want := []string{
		`level=INFO msg="job failed" id=0`, `level=WARN msg="job failed" id=7`, `level=INFO msg="job failed" id=8`,
		`level=INFO msg="job failed" id=9999 times=9999`, `level=INFO msg="job failed" id=9`,
	}
	if got := out.got(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Each interval has its count, and the failure is forgotten after one in which it did not come.
func TestRepeatsInTurn(t *testing.T) {
	var out lines
	r := repeats(&out, time.Millisecond)
	r.Log(slog.LevelInfo, "a", "failed")
	for over := time.After(time.Minute); len(out.got()) < 2; {
		r.Log(slog.LevelInfo, "a", "failed")
		select {
		case <-over:
			t.Fatal("it is not told that it came again")
		default:
		}
	}
	for over := time.After(time.Minute); ; {
		r.mu.Lock()
		n := len(r.all)
		r.mu.Unlock()
		if n == 0 {
			break
		}
		select {
		case <-over:
			t.Fatal("it is not forgotten")
		case <-time.After(time.Millisecond):
		}
	}
}

// What is too much to be remembered is logged.
func TestManyRepeats(t *testing.T) {
	var out lines
	r := repeats(&out, time.Hour)
	for i := range maxRepeats + 2 {
		r.Log(slog.LevelInfo, strings.Repeat("x", i), "failed")
		r.Log(slog.LevelInfo, strings.Repeat("x", i), "failed")
	}
	if n := len(out.got()); n != maxRepeats+4 {
		t.Errorf("%d lines", n)
	}
	r.Flush()
}
