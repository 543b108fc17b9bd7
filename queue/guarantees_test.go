package queue

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName   = regexp.MustCompile(`\bTest[A-Z]\w*`)
	testScript = regexp.MustCompile(`\b[\w-]+\.txtar\b`)
	codeBlock  = regexp.MustCompile("(?ms)^```.*?^```$")
	command    = regexp.MustCompile("`(?:make|go test) [^`]*`") // names tests by their beginnings
)

// Each test that the docs name is there, and each promise of a queue names one.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	for _, folder := range []string{".", "internal/block", "../faults", "../scheduler", "../lock", "../dialect", "../sqlschema", "../cmd/dbcron"} {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		must(t, err)
		for _, name := range files {
			for _, f := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, name), -1) {
				there[f[1]] = true
			}
		}
	}
	scripts, err := filepath.Glob("../testdata/cli/*.txtar")
	must(t, err)
	for _, name := range scripts {
		there[filepath.Base(name)] = true
	}
	pages, err := filepath.Glob("../docs/*.md")
	must(t, err)
	named := 0
	for _, page := range pages {
		if base := filepath.Base(page); base == "benchmarks.md" || base == "figures.md" { // which say what to run, by the beginnings of names
			continue
		}
		text := command.ReplaceAllString(codeBlock.ReplaceAllString(read(t, page), ""), "")
		for _, name := range append(testName.FindAllString(text, -1), testScript.FindAllString(text, -1)...) {
			if named++; !there[name] {
				t.Errorf("%s names %s, and there is no such test", page, name)
			}
		}
	}
	if named < 50 {
		t.Errorf("the pages name %d tests", named)
	}

	_, promises, _ := strings.Cut(read(t, "../docs/queue.md"), "## What is promised\n")
	promises, _, _ = strings.Cut(promises, "\n## ")
	rows := 0
	for line := range strings.Lines(promises) {
		if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "| **") && !strings.HasPrefix(line, "|---") && !strings.HasPrefix(line, "| | promise") {
			t.Errorf("a promise does not begin in bold, so that nobody looks for its proof: %s", line)
		}
		if strings.HasPrefix(line, "| **") {
			if rows++; !testName.MatchString(line) {
				t.Errorf("nothing proves %s", line)
			}
		}
	}
	if rows < 15 {
		t.Errorf("there are %d promises", rows)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	return string(text)
}
