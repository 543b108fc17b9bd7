package simulation

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A scenario is all that decides a run.
type scenario struct {
	workload string
	seed     uint64
	minutes  float64        // of virtual time with faults
	with     map[string]int // knobs that are not drawn
}

// String is the command that lives through it.
func (s scenario) String() string {
	text := fmt.Sprintf("make sim WORKLOAD=%s SEED=%d MINUTES=%v", s.workload, s.seed, s.minutes)
	if len(s.with) > 0 {
		text += " WITH=" + strings.ReplaceAll(knobsText(s.with), " ", ",")
	}
	return text
}

// flags are those with which a process lives through it, and through nothing else.
func (s scenario) flags() []string {
	return []string{
		"-workload=" + s.workload, fmt.Sprint("-first=", s.seed), "-seeds=1", fmt.Sprint("-minutes=", s.minutes),
		"-with=" + strings.ReplaceAll(knobsText(s.with), " ", ","),
	}
}

// file is its text in testdata: a line for each option.
func (s scenario) file(why string) string {
	text := fmt.Sprintf("# %s\nworkload=%s\nseed=%d\nminutes=%v\n", why, s.workload, s.seed, s.minutes)
	for _, name := range slices.Sorted(maps.Keys(s.with)) {
		text += fmt.Sprintf("%s=%d\n", name, s.with[name])
	}
	return text
}

// parseScenario reads what file wrote.
func parseScenario(text string) (s scenario, err error) {
	s.with = map[string]int{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "workload":
			s.workload = value
		case "seed":
			s.seed, err = strconv.ParseUint(value, 10, 64)
		case "minutes":
			s.minutes, err = strconv.ParseFloat(value, 64)
		default:
			s.with[name], err = strconv.Atoi(value)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", line, err)
		}
	}
	return s, nil
}

// kept are the scenarios of testdata.
func kept(t *testing.T) (all []scenario) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseScenario(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, s)
	}
	return all
}

func knobsText(knobs map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(knobs)) {
		all = append(all, fmt.Sprintf("%s=%d", name, knobs[name]))
	}
	return strings.Join(all, " ")
}

func parseKnobs(text string) (map[string]int, error) {
	all := map[string]int{}
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, value, _ := strings.Cut(one, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("%q: write name=number", one)
		}
		all[name] = n
	}
	return all, nil
}
