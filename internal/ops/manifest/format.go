package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/scheduler"
)

// Format writes schedules, in the order given, as a file that Parse reads back as equal
// schedules. Values that most of them share become defaults.
//
// It omits what files do not contain: ID, Source, Due, Failures, Reason, and all states but
// paused. Key becomes that of Parse. It refuses schedules with Problems, and duplicate names.
func Format(schedules []scheduler.Schedule) ([]byte, error) {
	var errs []error
	all := make([][]pair, len(schedules))
	names := map[string]bool{}
	for i := range schedules {
		s := &schedules[i]
		pairs, err := pairsOf(s)
		if names[s.Name] {
			err = errors.New("its name is given twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %q: %w", clip(s.Name, 60), err))
		}
		all[i], names[s.Name] = pairs, true
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	data := write(all)
	if err := check(data, schedules); err != nil {
		return nil, err
	}
	return data, nil
}

// check reads back what was written: an export that cannot be applied is worse than none.
func check(data []byte, schedules []scheduler.Schedule) error {
	again, err := Parse("written", data)
	if err != nil {
		return fmt.Errorf("the schedules do not fit into a file: %w", err)
	}
	for i := range schedules {
		if !reflect.DeepEqual(inFile(again[i]), inFile(schedules[i])) {
			return fmt.Errorf("schedule %q cannot be written so that it is read back the same", clip(schedules[i].Name, 60))
		}
	}
	return nil
}

// inFile returns a schedule reduced to what files contain, in a normal form.
func inFile(s schedule) schedule {
	s.ID, s.Source, s.Key, s.Reason, s.Failures, s.Due = 0, "", keyOf(s.Name), "", 0, time.Time{}
	s.Starts, s.Ends = s.Starts.UTC(), s.Ends.UTC()
	s.Kind = cmp.Or(s.Kind, "shell")
	if s.Kind == "argv" {
		s.Command = scheduler.Argv(wordsOf(s.Command)...)
	}
	if s.State != "paused" {
		s.State = ""
	}
	if s.Kind == "job" {
		s.MaxAttempts = 0
	} else {
		s.Job = scheduler.JobOptions{}
	}
	if len(s.Env) == 0 {
		s.Env = nil
	}
	if len(s.Headers) == 0 {
		s.Headers = nil
	}
	s.KeepFor = max(s.KeepFor, -1)
	return s
}

// wordsOf returns the words of a command of kind argv.
func wordsOf(command string) (words []string) {
	if err := json.Unmarshal([]byte(command), &words); err != nil {
		return nil // Problems refuses it
	}
	return words
}

// A pair is a key and its value in YAML. A pair without a value is not written.
type pair struct{ key, text string }

func pairsOf(s *schedule) ([]pair, error) {
	if wrong := s.Problems(); len(wrong) > 0 {
		texts := make([]string, len(wrong))
		for i, p := range wrong {
			texts[i] = p.Field + ": " + p.Text
		}
		return nil, errors.New(strings.Join(texts, "; "))
	}
	var pairs []pair
	for _, k := range keys {
		if k.set == nil || k.set.Not == "" || k.set.Not != s.Work() {
			pairs = append(pairs, pair{k.name, k.write(s)})
		}
		if k.name == "spec" {
			pairs = append(pairs, writeWork(s)...)
		}
	}
	return slices.DeleteFunc(pairs, func(p pair) bool { return p.text == "" }), nil
}

func write(all [][]pair) []byte {
	var b bytes.Buffer
	defaults := common(all)
	if len(defaults) > 0 {
		fmt.Fprintf(&b, "defaults:%s\n\n", indented(writeMapping(defaults), "  "))
	}
	if len(all) == 0 {
		b.WriteString("schedules: []\n")
		return b.Bytes()
	}
	b.WriteString("schedules:\n")
	for i, pairs := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		pairs = slices.DeleteFunc(pairs, func(p pair) bool { return slices.Contains(defaults, p) })
		item := strings.TrimPrefix(writeMapping(pairs), "\n")
		fmt.Fprintf(&b, "  - %s\n", indented(item, "    "))
	}
	return b.Bytes()
}

// common returns the defaults: for each key that all schedules have, the most frequent value,
// if more than one has it. A key that some schedule lacks cannot be a default, since the
// default would apply to that schedule, too.
func common(all [][]pair) (defaults []pair) {
	for _, k := range keys {
		if k.set == nil || k.set.Only != "" || slices.Contains([]string{"starts", "ends", "on_success", "on_failure"}, k.name) {
			continue
		}
		counts := map[string]int{}
		best, having := pair{}, 0
		for _, pairs := range all {
			i := slices.IndexFunc(pairs, func(p pair) bool { return p.key == k.name })
			if i < 0 {
				break
			}
			having++
			if counts[pairs[i].text]++; counts[pairs[i].text] > counts[best.text] {
				best = pairs[i]
			}
		}
		if having == len(all) && counts[best.text] > 1 {
			defaults = append(defaults, best)
		}
	}
	return defaults
}

// writeMapping begins with a newline, since the mapping follows its key.
func writeMapping(pairs []pair) string {
	var b strings.Builder
	for _, p := range pairs {
		if p.text == "" {
			continue
		}
		b.WriteString("\n" + p.key + ":")
		if p.text[0] != '\n' {
			b.WriteString(" ")
		}
		b.WriteString(indented(p.text, "  "))
	}
	return b.String()
}

// indented indents all lines but the first.
func indented(text, by string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if i > 0 && line != "" {
			lines[i] = by + line
		}
	}
	return strings.Join(lines, "\n")
}

// writeText writes a text as people would: without unnecessary quotes. Go's escapes are valid
// in YAML.
func writeText(text string) string {
	switch {
	case text == "" || isPlain(text):
		return text
	case strings.ContainsAny(text, `"\`) && !strings.ContainsFunc(text, unprintable):
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	return strconv.Quote(text)
}

func unprintable(char rune) bool { return !unicode.IsPrint(char) }

// Versions of YAML differ in what they read as numbers: 12:30, 1_000, 0o7.
var likeNumber = pattern.Lazy(`^[-+.]?[0-9][0-9a-fA-FoOxX_:.,+-]*$`)

// option matches text that may begin with -, which otherwise begins a list item.
var option = pattern.Lazy(`^--?[A-Za-z]`)

// isPlain reports whether a text needs no quotes. It is slightly stricter than YAML.
func isPlain(text string) bool {
	first, _ := utf8.DecodeRuneInString(text)
	begins := unicode.IsLetter(first) || unicode.IsDigit(first) || strings.ContainsRune("/$(._+~", first) || option().MatchString(text)
	node := yaml.Node{Kind: yaml.ScalarNode, Value: text}
	return begins && !strings.ContainsFunc(text, unprintable) &&
		!strings.Contains(text, ": ") && !strings.Contains(text, " #") &&
		!strings.HasSuffix(text, ":") && !strings.HasSuffix(text, " ") &&
		node.ShortTag() == "!!str" && !truth(&node) && !likeNumber().MatchString(text)
}

var plainInFlow = pattern.Lazy(`^[A-Za-z0-9/._=+@%-]+$`)

// writeInFlow writes a text inside [ ], where more texts need quotes.
func writeInFlow(text string) string {
	if isPlain(text) && plainInFlow().MatchString(text) {
		return text
	}
	if written := writeText(text); written != text {
		return written
	}
	return strconv.Quote(text)
}

// writeLines writes a text of several lines as a block, if the block shows everything that
// matters.
func writeLines(text string) string {
	body, ended := strings.CutSuffix(text, "\n")
	lines := strings.Split(body, "\n")
	for _, line := range lines {
		if strings.TrimRight(line, " \t") != line || strings.ContainsFunc(strings.ReplaceAll(line, "\t", ""), unprintable) {
			return writeText(text)
		}
	}
	if !strings.Contains(text, "\n") || lines[0] == "" || strings.ContainsAny(lines[0][:1], " \t") || lines[len(lines)-1] == "" {
		return writeText(text)
	}
	if ended {
		return "|\n" + body
	}
	return "|-\n" + body
}
