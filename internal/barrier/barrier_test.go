package barrier

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// bad is an error whose named methods panic.
type bad string

func (b bad) is(method string) {
	if strings.Contains(string(b), method) {
		panic("oh, " + method)
	}
}

func (b bad) Error() string { b.is("Error"); return "a text" }
func (b bad) Unwrap() error { b.is("Unwrap"); return io.EOF }
func (b bad) Is(error) bool { b.is("Is"); return false }
func (b bad) As(any) bool   { b.is("As"); return false }

type worse struct{}

func (worse) Error() string { panic(worse{}) }

type endless struct{}

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return e }

// wrapping wraps an error without asking for its text.
type wrapping struct{ error }

func (w *wrapping) Unwrap() error { return w.error }

type pointer struct{ text string }

func (p *pointer) Error() string { return p.text }

func TestText(t *testing.T) {
	var none *pointer
	for want, err := range map[string]error{
		"a text": bad(""),
		"panic: oh, Error, in a method of the returned error barrier.bad":                                 bad("Error"),
		"panic: a barrier.worse, whose text panics, too, in a method of the returned error barrier.worse": worse{},
		"panic: runtime error: invalid memory address or nil pointer dereference, in a method of the returned error, " +
			"a nil *barrier.pointer: return a plain nil for success": none,
	} {
		text, stack, wrong := Text(err)
		if text != want || (stack == "") != (wrong == nil) || wrong != nil && !strings.Contains(stack, "barrier_test.go") {
			t.Errorf("%q, stack %q, %v, want %q", text, stack, wrong, want)
		}
	}
}

// What is found beside an error whose methods panic, and what is said of these.
func TestTrees(t *testing.T) {
	is := &pointer{"it"}
	for name, err := range map[string]error{
		"Error": bad("Error"), "Unwrap": bad("Unwrap"), "Is": bad("Is"), "As": bad("As"), "worse": worse{}, "endless": endless{}, "nothing": nil,
	} {
		for _, tree := range []error{errors.Join(err, is), &wrapping{errors.Join(err, is)}, errors.Join(is, err)} {
			found, ok, _ := Find[*pointer](tree)
			if same, _ := Is(tree, is); !ok || found != is || !same {
				t.Errorf("%s: found %v %t, %t", name, found, ok, same)
			}
		}
		_, ok, wrongAs := Find[*pointer](err)
		same, wrongIs := Is(err, is)
		if ok || same || (wrongAs != nil) != slices.Contains([]string{"Unwrap", "As", "endless"}, name) ||
			(wrongIs != nil) != slices.Contains([]string{"Unwrap", "Is", "endless"}, name) {
			t.Errorf("%s: %t %v, %t %v", name, ok, wrongAs, same, wrongIs)
		}
	}
	if same, _ := Is(bad(""), io.EOF); !same {
		t.Error("what it wraps is not found")
	}
}

// hurt is a handler that panics.
type hurt struct{ lines int }

func (h *hurt) Enabled(context.Context, slog.Level) bool      { panic("oh, Enabled") }
func (h *hurt) Handle(_ context.Context, r slog.Record) error { h.lines++; panic("oh, Handle") }
func (h *hurt) WithAttrs([]slog.Attr) slog.Handler            { panic("oh, WithAttrs") }
func (h *hurt) WithGroup(string) slog.Handler                 { return nil }

func TestLogger(t *testing.T) {
	h := &hurt{}
	log := Logger(slog.New(h))
	if Logger(log) != log {
		t.Error("it is guarded twice")
	}
	log.Info("a")
	log.With("k", 1).WithGroup("g").Info("b")
	Tell(log, "Ended", func() { panic("oh") })
	if h.lines != 3 {
		t.Errorf("%d lines", h.lines)
	}
}
