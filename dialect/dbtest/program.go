package dbtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Program builds the tests of t's package as a program without the race detector, for tests that
// start many processes: with it each takes several times as long.
func Program(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", name, ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return name
}

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
// since starting one takes longer than the tests.
func TestMutants(t *testing.T, mutants []Mutant) {
	t.Helper()
	if Mutated != nil {
		t.Skip("this is one of them")
	}
	if testing.Short() {
		t.Skip("this starts a program for each test")
	}
	t.Parallel()
	program := Program(t)
	byTest := map[string][]string{}
	for i, m := range mutants {
		byTest[m.Test] = append(byTest[m.Test], strconv.Itoa(i))
	}
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
					cmd.Env = append(cmd.Env, e.Variable+"="+Fresh(t, e.Name).URL)
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
				}
			}
			for _, number := range numbers {
				i, _ := strconv.Atoi(number)
				t.Errorf("%s does not notice %s without %q:\n%s", test, mutants[i].Stmt.Name, mutants[i].Old, out)
			}
		})
	}
}
