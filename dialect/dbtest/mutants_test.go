package dbtest

import (
	"testing"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A mutant is tested again if its statement, itself or its test is another.
func TestMutantsThatChange(t *testing.T) {
	const sources = "\nfunc TestA(t *testing.T) {\n\tone()\n}\n\nfunc TestB(t *testing.T) {\n\ttwo()\n}\n"
	stmt := sqlrun.Unlisted("SELECT 1 FROM {prefix}job WHERE id = 1")
	first := Mutant{stmt, "id = 1", "1 = 1", "TestA/sqlite"}
	if first.line(sources) == "" || first.line(sources) != first.line(sources+"\nfunc TestC(t *testing.T) {\n}\n") {
		t.Errorf("another test matters: %q", first.line(sources))
	}
	seen := map[string]bool{first.line(sources): true}
	for what, line := range map[string]string{
		"another statement":   Mutant{sqlrun.Unlisted("SELECT 2 FROM {prefix}job WHERE id = 1"), first.Old, first.Changed, first.Test}.line(sources),
		"another change":      Mutant{stmt, first.Old, "2 = 2", first.Test}.line(sources),
		"another test":        Mutant{stmt, first.Old, first.Changed, "TestB/sqlite"}.line(sources),
		"another engine":      Mutant{stmt, first.Old, first.Changed, "TestA/postgres"}.line(sources),
		"a test that changed": first.line("\nfunc TestA(t *testing.T) {\n\tthree()\n}\n"),
	} {
		if line == "" || seen[line] {
			t.Errorf("%s: %q", what, line)
		}
		seen[line] = true
	}
	if line := first.line("\n"); line != "" {
		t.Errorf("there is no test, and a line: %q", line)
	}
}
