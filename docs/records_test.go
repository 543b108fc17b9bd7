package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Words of a decision, with those of its tables, and without the lines between cells.
const longestDecision = 300

// A decision is read in a screen: context, decision, consequence. The index has each number, also those
// that are gone, with where their content is.
func TestDecisions(t *testing.T) {
	all := texts(t)
	index := all["adr/README.md"]
	title := regexp.MustCompile(`^# (\d+)\. (.+)\n`)
	newest, there := 0, map[int]bool{}
	for name, text := range all {
		if !strings.HasPrefix(name, "adr/") || name == "adr/README.md" {
			continue
		}
		n := 0
		if _, err := fmt.Sscanf(name, "adr/%04d-", &n); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		newest, there[n] = max(newest, n), true
		head := title.FindStringSubmatch(text)
		if head == nil || head[1] != fmt.Sprint(n) {
			t.Errorf("%s does not begin with # %d. and what was decided", name, n)
		} else if row := fmt.Sprintf("| [%d](%s) |", n, strings.TrimPrefix(name, "adr/")); !strings.Contains(index, row) {
			t.Errorf("the index has no row %s", row)
		} else if _, rest, _ := strings.Cut(index, row); !strings.HasSuffix(strings.SplitN(rest, "\n", 2)[0], "| "+head[2]+" |") {
			t.Errorf("the index has another title of decision %d than: %s", n, head[2])
		}
		if words := len(strings.Fields(strings.ReplaceAll(text, "|", " "))); words > longestDecision {
			t.Errorf("%s has %d words, more than %d", name, words, longestDecision)
		}
		at := 0
		for _, part := range []string{"\n## Context\n", "\n## Decision\n", "\n## Consequence\n"} {
			i := strings.Index(text[at:], part)
			if i < 0 {
				t.Errorf("%s has no %s, or in another order", name, strings.TrimSpace(part))
				break
			}
			at += i
		}
	}
	for n := 1; n <= newest; n++ {
		if gone := strings.Contains(index, fmt.Sprintf("\n| %d | ", n)); gone == there[n] {
			t.Errorf("decision %d has a file: %t; the index says that it is gone: %t", n, there[n], gone)
		}
	}
}

// An entry of the changelog has at most 25 words, on one line.
func TestChangelog(t *testing.T) {
	page := texts(t)["../CHANGELOG.md"]
	for line := range strings.Lines(page) {
		entry, is := strings.CutPrefix(line, "- ")
		if words := len(strings.Fields(entry)); is && words > 25 {
			t.Errorf("an entry of %d words, more than 25: %s", words, entry)
		} else if !is && strings.HasPrefix(line, " ") {
			t.Errorf("an entry goes on: %s", line)
		}
	}
}
