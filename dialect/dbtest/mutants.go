package dbtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Mutant is a statement without one of its guards, and the test that must notice.
type Mutant struct {
	Stmt         *sqlrun.Stmt
	Old, Changed string
	Test         string // as for -test.run, but without ^ and $
}

const mutantsVariable = "DBCRON_TEST_MUTANTS"

// Mutated is the statement of the mutant that this program currently runs, or nil.
var Mutated *sqlrun.Stmt

// MutantsMain is for TestMain. In a program started by TestMutants it runs the tests for each mutant
// in turn and exits.
func MutantsMain(m *testing.M, mutants []Mutant) {
	numbers, is := os.LookupEnv(mutantsVariable)
	if !is {
		return
	}
	for number := range strings.SplitSeq(numbers, ",") {
		i, err := strconv.Atoi(number)
		if err != nil {
			panic(err)
		}
		undo := mutants[i].Stmt.Mutate(engines.All, mutants[i].Old, mutants[i].Changed)
		Mutated = mutants[i].Stmt
		_, _ = fmt.Fprintf(os.Stdout, "%s%d\n", mutantMark, i)
		m.Run()
		undo()
	}
	os.Exit(0)
}

const mutantMark = "== mutant "

// TestMutants fails for each mutant whose test passes. Mutants with the same test share a program,
// since starting one takes longer than the tests. A mutant that caughtFile lists is left to
// DBCRON_TEST_LONG=true: since its test noticed it, neither the statement nor the test has changed.
func TestMutants(t *testing.T, mutants []Mutant) {
	t.Helper()
	if Mutated != nil {
		t.Skip("this is one of them")
	}
	if testing.Short() {
		t.Skip("this starts a program for each test")
	}
	t.Parallel()
	byTest, caught := remaining(t, mutants)
	if len(byTest) == 0 {
		return
	}
	t.Cleanup(func() { caught.write(t, mutants) })
	program := Program(t)
	for test, numbers := range byTest {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			for name := range strings.SplitSeq(test, "/") {
				if dbserver.LeftOut(name) {
					t.Skip("DBCRON_TEST_ENGINES leaves it out")
				}
			}
			pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
			cmd := exec.CommandContext(t.Context(), program, "-test.run", pattern, "-test.timeout", "10m")
			// What runs for each commit must notice.
			cmd.Env = append(os.Environ(), mutantsVariable+"="+strings.Join(numbers, ","), longVariable+"=")
			for _, e := range dbserver.Engines {
				if slices.Contains(strings.Split(test, "/"), e.Name) {
					cmd.Env = append(cmd.Env, e.Variable+"="+serverURL(t, e.Name))
				}
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v", test, err)
			}
			name, _, _ := strings.Cut(test, "/")
			for _, part := range strings.Split(string(out), mutantMark)[1:] {
				number, text, _ := strings.Cut(part, "\n")
				at := slices.Index(numbers, number)
				if at >= 0 && strings.Contains(text, "--- FAIL: "+name) {
					numbers = slices.Delete(numbers, at, at+1)
					caught.add(number)
				}
			}
			for _, number := range numbers {
				i, _ := strconv.Atoi(number)
				t.Errorf("%s does not notice %s without %q:\n%s", test, mutants[i].Stmt.Name, mutants[i].Old, out)
			}
		})
	}
}

// caughtFile has a line for each mutant that its test has noticed: a sum of what that depends on,
// the statement and the test. DBCRON_TEST_RECORD=true adds those that are noticed now.
const caughtFile = "testdata/mutants.caught"

// line is a mutant's line in caughtFile, or empty if its test is not found in sources, the
// package's tests.
func (m Mutant) line(sources string) string {
	name, _, _ := strings.Cut(m.Test, "/")
	_, test, found := strings.Cut(sources, "\nfunc "+name+"(t *testing.T) {")
	if !found {
		return ""
	}
	test, _, _ = strings.Cut(test, "\n}\n")
	sum := sha256.New()
	for _, d := range engines.All {
		_, _ = fmt.Fprintf(sum, "%s\n\n", m.Stmt.Text(d))
	}
	_, _ = fmt.Fprintf(sum, "%s\n\n%s\n\n%s\n\n%s", m.Old, m.Changed, m.Test, test)
	return fmt.Sprintf("%x %s %s", sum.Sum(nil)[:8], m.Stmt.Name, m.Test)
}

// A record is the mutants that were noticed.
type record struct {
	mu      sync.Mutex
	sources string
	lines   map[string]bool
}

// remaining returns the numbers of the mutants to test, by their tests.
func remaining(t *testing.T, mutants []Mutant) (byTest map[string][]string, r *record) {
	t.Helper()
	r = &record{sources: "\n", lines: map[string]bool{}}
	names, err := filepath.Glob("*_test.go")
	Must(t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		Must(t, err)
		r.sources += string(text)
	}
	listed, err := os.ReadFile(caughtFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(listed)) {
		r.lines[strings.TrimSpace(line)] = true
	}
	byTest = map[string][]string{}
	for i, m := range mutants {
		if line := m.line(r.sources); Long() || line == "" || !r.lines[line] {
			byTest[m.Test] = append(byTest[m.Test], strconv.Itoa(i))
		}
	}
	return byTest, r
}

func (r *record) add(number string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines["#"+number] = true
}

// write rewrites caughtFile, if that was asked for.
func (r *record) write(t *testing.T, mutants []Mutant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if os.Getenv("DBCRON_TEST_RECORD") != "true" {
		return
	}
	var lines []string
	for i, m := range mutants {
		if line := m.line(r.sources); line != "" && (r.lines[line] || r.lines["#"+strconv.Itoa(i)]) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	err := os.MkdirAll(filepath.Dir(caughtFile), 0o750)
	if err == nil {
		err = os.WriteFile(caughtFile, []byte(strings.Join(slices.Compact(lines), "\n")+"\n"), 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}

// serverURL returns the URL of an engine's server.
func serverURL(t *testing.T, name string) string {
	t.Helper()
	for _, e := range tested {
		if e.name == name {
			adminURL, err := e.server()
			if err != nil {
				Missing(t, err)
			}
			return adminURL
		}
	}
	t.Fatalf("no such engine: %s", name)
	return ""
}
