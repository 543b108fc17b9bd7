package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/dbcron/dbcron/internal/ops/logs"
)

// newLogger logs text for people or JSON, at the given level and above.
func newLogger(w io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	form := logs.JSON
	switch {
	case format == "text", format == "auto" && isTerminal(w):
		form = logs.Lines
	case format != "json" && format != "auto":
		return nil, usagef("log format %q is not known: use text, json or auto", format)
	}
	if o, ok := w.(*logs.Outlet); ok {
		o.Note(func(lines int64) []byte {
			var b bytes.Buffer
			log := slog.New(form(&b, level))
			log.Log(context.Background(), max(level, slog.LevelWarn), "lines of the log were dropped here: nobody read them", "lines", lines)
			return b.Bytes()
		})
	}
	return slog.New(form(w, level)), nil
}

// steady are the commands that go on for long: nobody who reads what they write may hold them up.
var steady = []string{"dbcron serve", "dbcron worker exec", "dbcron lock run", "dbcron demo"}

// unhurried makes standard error an outlet. A reader that has gone does not end the program, as SIGPIPE would; commands that it starts
// have the signal's default.
func (p *program) unhurried() {
	p.err = logs.NewOutlet(p.err)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// outlet returns the outlet that standard error is, or nil.
func (p *program) outlet() *logs.Outlet {
	o, _ := p.err.(*logs.Outlet)
	return o
}

// readLevel reads the level of a log.
func readLevel(name string) (slog.Level, error) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(name, level.String()) {
			return level, nil
		}
	}
	return 0, usagef("log level %q is not known: use debug, info, warn or error", name)
}
