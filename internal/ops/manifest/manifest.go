// Package manifest reads and writes YAML files that declare schedules. It converts between text
// and schedules: it opens no file and no database, and reads no clock.
//
//	defaults:
//	  time_zone: Europe/Berlin
//	schedules:
//	  - name: backup
//	    spec: "30 3 * * *"
//	    shell: pg_dump shop | gzip > /backup/shop.gz
//	    timeout: 1h
//	  - {name: ping, spec: "@every 15m", http: {url: https://example.org/ping}}
//
// The keys of a schedule are named after the fields of scheduler.Schedule. One of the keys
// shell, argv, http, sql, func and job says what to run. See examples/schedules for all keys.
//
// Schedules are a list, not a mapping by name. So their order has a meaning; a name that is
// missing, empty, a number or a duplicate is reported as such; and it need not come first.
//
// Defaults apply to each schedule that does not override them. The variables of env are merged.
// Defaults for commands (env, dir, user, stall, kill_grace) do not apply to other schedules,
// and on_success and on_failure do not apply to the schedule that they name. The empty text ""
// cancels a default.
//
// Types are strict, since YAML guesses: a number, a date, true, or an unquoted yes is not a
// text unless quoted.
//
// Anchors, aliases and merge keys (<<) are supported. Top-level keys that begin with x- are
// ignored, as a place for anchors. Tags such as !!str, and files with several documents, are
// refused.
package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/dbcron/dbcron/scheduler"
)

const (
	maxFile      = 16 << 20 // bytes
	maxSchedules = 100_000

	// maxWeight limits the expansion of a file by aliases, merge keys and defaults: the total
	// size of everything read, counting each use of an alias.
	maxWeight = 64 << 20

	maxMessage  = 500 // characters
	maxProblems = 1000
)

// Parse reads a schedule file. The file's name is used in messages only.
//
// It returns all schedules, or an error that joins the errors of all lines. Each is one line,
// "file:line: what is wrong; what to do". After a syntax error nothing else is checked, since
// the intended structure is unknown.
//
// The Key of a schedule is "name:" and its name; Import sets Source. State is paused or active
// if the file has the key paused, and otherwise empty: the file does not determine it.
func Parse(file string, data []byte) ([]scheduler.Schedule, error) {
	r := reader{
		told: map[problem]bool{}, names: map[string]int{}, runes: map[int][]rune{}, merging: map[*yaml.Node]bool{},
		defaults: map[string]entry{}, ofDefaults: map[scheduler.Problem]bool{},
	}
	schedules := r.file(data)
	if len(r.found) == 0 {
		return schedules, nil
	}
	slices.SortStableFunc(r.found, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	if len(r.found) >= maxProblems {
		last := r.found[len(r.found)-1].line
		r.found = append(r.found, problem{
			last,
			fmt.Sprintf("%d errors were found, and no more were looked for; correct these first", maxProblems),
		})
	}
	var errs []error
	for _, p := range r.found {
		errs = append(errs, fmt.Errorf("%s:%d: %s", file, p.line, p.text))
	}
	return nil, errors.Join(errs...)
}

// A reader reads one file.
type reader struct {
	lines [][]byte
	runes map[int][]rune // of some lines: see from
	names map[string]int // the line of each name

	found    []problem
	told     map[problem]bool // problems inside an anchor are found at each alias
	failures int              // including repeated ones

	weight  int // see maxWeight
	merging map[*yaml.Node]bool

	defaults   map[string]entry
	ofDefaults map[scheduler.Problem]bool // problems of the defaults alone
}

// A problem is what is wrong in a line, and what to do.
type problem struct {
	line int
	text string
}

func (r *reader) fail(line int, format string, args ...any) {
	text := clip(fmt.Sprintf(format, args...), maxMessage)
	p := problem{line, text}
	r.failures++
	if !r.told[p] && len(r.found) < maxProblems {
		r.told[p] = true
		r.found = append(r.found, p)
	}
}

// clip shortens text for messages, whatever the file contains.
func clip(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "..."
}

func (r *reader) file(data []byte) []scheduler.Schedule {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if len(data) > maxFile {
		r.fail(1, "the file has %d bytes; use at most %d", len(data), maxFile)
		return nil
	}
	r.lines = bytes.Split(data, []byte("\n"))
	if !r.checkCharacters() {
		return nil
	}
	root := r.document(data)
	if r.failures > 0 {
		return nil
	}
	schedules := r.root(root)
	if r.tooHeavy() {
		// Omitted parts would cause errors that do not exist.
		r.found = nil
		r.fail(1, "the file is larger than %d bytes when its defaults and aliases are written out; make it smaller", maxWeight)
	}
	return schedules
}

// root reads the whole file; nil stands for a file without content.
func (r *reader) root(node *yaml.Node) []scheduler.Schedule {
	// Applying an empty file would delete the schedules applied before.
	const missing = "the file has no key schedules; write schedules: [] if none is meant"
	if node == nil || node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		r.fail(1, missing)
		return nil
	}
	if is := ofOtherTool(node); is != "" {
		r.fail(node.Line, "%s", is)
		return nil
	}
	given, ok := r.mapping("the file", r.value(node))
	if !ok {
		return nil
	}
	var schedules value
	for _, e := range given {
		switch {
		case e.key == "schedules":
			schedules = e.value
		case e.key == "defaults":
			r.readDefaults(e.value)
		case !strings.HasPrefix(e.key, "x-"):
			r.tellUnknown(e, suggest(e.key, []string{"defaults", "schedules"}, nil))
		}
	}
	if schedules.node == nil {
		r.fail(node.Line, missing)
		return nil
	}
	return r.schedules(schedules)
}

func (r *reader) tellUnknown(e entry, advice string) {
	r.fail(e.line, "unknown key %q%s", clip(e.key, 60), advice)
}

func (r *reader) schedules(v value) (all []scheduler.Schedule) {
	items, ok := r.list("schedules", v, "[] if none is meant, else items that begin with - name: NAME")
	if !ok {
		return nil
	}
	if len(items) > maxSchedules {
		r.fail(v.line, "the file has %d schedules; use at most %d", len(items), maxSchedules)
		return nil
	}
	for _, item := range items {
		if r.tooHeavy() || len(r.found) >= maxProblems {
			return nil
		}
		if s, ok := r.readSchedule(item); ok {
			all = append(all, s)
		}
	}
	return all
}
