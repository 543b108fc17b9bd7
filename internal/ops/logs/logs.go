// Package logs has the two forms of the daemon's log.
package logs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

// jsonAttr writes durations as seconds, and of a command's output the size.
func jsonAttr(_ []string, a slog.Attr) slog.Attr {
	if output, ok := a.Value.Any().(scheduler.Output); ok {
		return slog.Int(a.Key+"_bytes", len(output))
	}
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_seconds", a.Value.Duration().Seconds())
	}
	return a
}

// Lines returns a handler for people: one line per record.
func Lines(w io.Writer, level slog.Level) slog.Handler {
	return &lines{w: w, mu: &sync.Mutex{}, level: level}
}

// JSON returns a handler for programs.
func JSON(w io.Writer, level slog.Level) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: jsonAttr})
}

type lines struct {
	mu    *sync.Mutex
	w     io.Writer
	level slog.Level
	attrs []slog.Attr
}

// Enabled reports whether a level is logged.
func (h *lines) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// WithGroup ignores groups, which are not used here.
func (h *lines) WithGroup(string) slog.Handler { return h }

// WithAttrs returns a handler that adds attrs to each line.
func (h *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &lines{h.mu, h.w, h.level, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// Handle writes a line.
func (h *lines) Handle(_ context.Context, r slog.Record) error {
	attrs := h.attrs
	r.Attrs(func(a slog.Attr) bool { attrs = append(attrs[:len(attrs):len(attrs)], a); return true })
	text := r.Message
	if r.Level >= slog.LevelWarn {
		text = r.Level.String() + " " + text
	}
	if r.Message == "run" {
		text = runLine(attrs)
	} else {
		for _, a := range attrs {
			text += "  " + a.Key + "=" + shownValue(a.Value.String())
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := fmt.Fprintf(h.w, "%s %s\n", r.Time.Format(time.TimeOnly), plain.Line(text, 400))
	return err
}

// shownValue returns a value as a field of a line. One that could be taken for more fields is quoted: paths and names are
// anybody's.
func shownValue(text string) string {
	if strings.Contains(text, "=") || strings.Contains(text, "  ") || strings.ContainsAny(text, "\"\n\r\t") {
		return strconv.Quote(text)
	}
	return text
}

// runLine describes a run: state, schedule, slot, and result.
func runLine(attrs []slog.Attr) string {
	v := map[string]slog.Value{}
	for _, a := range attrs {
		v[a.Key] = a.Value
	}
	due, _ := v["due"].Any().(time.Time)
	text := fmt.Sprintf("%-7s %s  due %s", v["state"], v["schedule"], due.Local().Format(time.TimeOnly))
	if n := v["attempt"].Int64(); n > 1 {
		text += fmt.Sprintf(" attempt %d", n)
	}
	text += fmt.Sprintf("  took %v", v["took"].Duration().Round(time.Millisecond))
	if why := v["error"].String(); why != "" {
		text += "  " + why
	}
	if output, ok := v["output"].Any().(scheduler.Output); ok && strings.TrimSpace(string(output)) != "" {
		text += "  | " + plain.Line(string(output), 100)
	}
	return text
}
