package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// Both formats log records of the given level and above.
func TestLogLevel(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for name, want := range map[string]string{"debug": "abcd", "info": "bcd", "WARN": "cd", "error": "d"} {
			level, err := readLevel(name)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			log, err := newLogger(&out, format, level)
			if err != nil {
				t.Fatal(err)
			}
			log = log.With("of", "all")
			for i, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
				log.Log(t.Context(), l, "message-"+string("abcd"[i]))
			}
			for _, c := range "abcd" {
				if got := strings.Contains(out.String(), "message-"+string(c)); got != strings.ContainsRune(want, c) {
					t.Errorf("%s at %s logs\n%s", format, name, out.String())
				}
			}
		}
	}
	if _, err := readLevel("loud"); err == nil {
		t.Error("a level that is none is taken")
	}
}

// A value from anybody, such as a path, cannot look like another field of the line, or push the status out of it.
func TestLogFieldsCannotBeForged(t *testing.T) {
	var out bytes.Buffer
	log, err := newLogger(&out, "text", slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("http", "status", 404, "path", "/x  status=200", "from", "a\nb", "why", "not found")
	_, got, _ := strings.Cut(strings.TrimSpace(out.String()), " ")
	if want := `http  status=404  path="/x  status=200"  from="a\nb"  why=not found`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
