package queue

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	bold       = regexp.MustCompile(`^\| \*\*([^*]+)\*\* \|`)
	testName   = regexp.MustCompile(`\bTest[A-Z]\w*`)
	testScript = regexp.MustCompile(`\b[\w-]+\.txtar\b`)
	codeBlock  = regexp.MustCompile("(?ms)^```.*?^```$")
	command    = regexp.MustCompile("`(?:make|go test) [^`]*`") // names tests by their beginnings
)

// Each promise of docs/promises.md about queues has tests in testdata/promises.txt, and no other. Those tests are there, and so is
// each test that another page names.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	anywhere, here := map[string]bool{}, map[string]bool{} // here: with the folder, as promises.txt has it
	for _, folder := range []string{".", "internal/block", "../faults", "../scheduler", "../lock", "../dialect", "../sqlschema", "../cmd/dbcron"} {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		must(t, err)
		from := strings.TrimPrefix(path.Join("queue", folder)+".", "queue.")
		for _, name := range files {
			for _, f := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, name), -1) {
				anywhere[f[1]], here[from+f[1]] = true, true
			}
		}
	}
	scripts, err := filepath.Glob("../testdata/cli/*.txtar")
	must(t, err)
	for _, name := range scripts {
		anywhere[filepath.Base(name)] = true
	}
	pages, err := filepath.Glob("../docs/*.md")
	must(t, err)
	for _, page := range pages {
		if base := filepath.Base(page); base == "benchmarks.md" || base == "figures.md" { // which say what to run, by the beginnings of names
			continue
		}
		text := command.ReplaceAllString(codeBlock.ReplaceAllString(read(t, page), ""), "")
		for _, name := range append(testName.FindAllString(text, -1), testScript.FindAllString(text, -1)...) {
			if !anywhere[name] {
				t.Errorf("%s names %s, and there is no such test", page, name)
			}
		}
	}

	proof := map[string]bool{}
	for line := range strings.Lines(read(t, "testdata/promises.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		promise, tests, _ := strings.Cut(line, ":")
		proof[promise] = true
		if strings.TrimSpace(tests) == "" {
			t.Errorf("nothing proves %q", promise)
		}
		for _, name := range strings.Fields(tests) {
			if !here[name] {
				t.Errorf("promises.txt names %s of %q, and there is no such test", name, promise)
			}
		}
	}
	_, promises, _ := strings.Cut(read(t, "../docs/promises.md"), "## Queues\n")
	promises, _, _ = strings.Cut(promises, "\n## ")
	rows := 0
	for line := range strings.Lines(promises) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise |") {
			continue
		}
		promise := bold.FindStringSubmatch(line)
		if promise == nil {
			t.Errorf("a promise does not begin in bold, so that nobody looks for its proof: %s", line)
			continue
		}
		if rows++; !proof[promise[1]] {
			t.Errorf("promises.txt has no tests of %q", promise[1])
		}
		delete(proof, promise[1])
	}
	for promise := range proof {
		t.Errorf("promises.txt has tests of %q, which promises.md does not promise", promise)
	}
	if rows < 30 {
		t.Errorf("there are %d promises", rows)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	return string(text)
}
