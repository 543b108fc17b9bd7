package dbtest

import (
	"os/exec"
	"path/filepath"
	"testing"
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
