package dbtest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Program builds the tests of the package that t is of as a program without the race
// detector, for tests that start very many: with it each takes several times as long.
func Program(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", name, ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return name
}
