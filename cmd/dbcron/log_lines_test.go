package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// logged is logged WORD…: a command's log on stderr is JSON, one record a line, whose figures
// are numbers. Each word has to be the key of such a figure.
func logged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: logged KEY…")
	}
	found, err := figures(ts.ReadFile("stderr"))
	ts.Check(err)
	for _, key := range args {
		if found[key] == 0 {
			ts.Fatalf("no record has the figure %q; there are %v", key, found)
		}
	}
}

var (
	// figureKey matches keys of figures: those with a unit or that count something.
	figureKey = regexp.MustCompile(`^(.*_)?(took|seconds|ms|bytes|count|attempts?|exit_code|added|changed|removed|unchanged|jobs|runs|schedules|slots)$`)

	// figureText matches texts that are a number, with or without a unit.
	figureText = regexp.MustCompile(`^-?[0-9][0-9.]* ?([nmµ]?s|m|h|d|B|[KMG]iB|bytes|jobs|runs|schedules|added|unchanged)?$`)
)

// figures counts, by their keys, the numbers in records of a log in JSON. It is an error if a line
// is no record, or a figure a text.
func figures(log string) (found map[string]int, err error) {
	found = map[string]int{}
	for i, line := range strings.Split(strings.TrimSuffix(log, "\n"), "\n") {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			return nil, fmt.Errorf("line %d is no record: %w: %s", i+1, err, line)
		}
		for _, key := range []string{"time", "level", "msg"} {
			if text, _ := record[key].(string); text == "" {
				return nil, fmt.Errorf("line %d has no %s: %s", i+1, key, line)
			}
		}
		for key, value := range record {
			switch value := value.(type) {
			case float64:
				found[key]++
			case string:
				if figureKey.MatchString(key) || figureText.MatchString(value) {
					return nil, fmt.Errorf("line %d: %s is the text %q, not a number: %s", i+1, key, value, line)
				}
			}
		}
	}
	return found, nil
}

func TestFigures(t *testing.T) {
	const start = `{"time":"2026-11-24T08:00:00Z","level":"INFO","msg":"run",`
	if found, err := figures(start + `"schedule":"a 5","took_seconds":0.5,"added":2}` + "\n"); err != nil || found["took_seconds"] != 1 || found["added"] != 1 {
		t.Error(found, err)
	}
	for more, want := range map[string]string{
		`"took_seconds":"0.5"}`: "line 1: took_seconds is the text", `"added":"none"}`: "line 1: added is the text",
		`"grace":"30s"}`: "line 1: grace is the text", `"size":"3 KiB"}`: "line 1: size is the text", `"n":"7"}`: "line 1: n is the text",
		`"a":1`: "line 1 is no record", "\"a\":1}\nplain": "line 2 is no record", `"a":1}` + "\n" + `{"time":"x","msg":"y"}`: "line 2 has no level",
	} {
		if _, err := figures(start + more); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", more, err, want)
		}
	}
}
