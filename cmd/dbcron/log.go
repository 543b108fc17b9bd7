package main

import (
	"io"
	"log/slog"
	"strings"

	"github.com/dbcron/dbcron/internal/ops/logs"
)

// newLogger logs text for people or JSON, at the given level and above.
func newLogger(w io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	switch {
	case format == "text", format == "auto" && isTerminal(w):
		return slog.New(logs.Lines(w, level)), nil
	case format == "json", format == "auto":
		return slog.New(logs.JSON(w, level)), nil
	}
	return nil, usagef("log format %q is not known: use text, json or auto", format)
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
