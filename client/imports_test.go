package client_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A program that uses the client brings no database, and nothing but the standard library.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	must(t, err)
	for _, line := range strings.Fields(string(out)) {
		switch line {
		case "github.com/dbcron/dbcron/client", "github.com/dbcron/dbcron/internal/pace", "github.com/dbcron/dbcron/internal/barrier",
			"github.com/dbcron/dbcron/internal/pattern", "github.com/dbcron/dbcron/internal/plain", "github.com/dbcron/dbcron/wire":
		default:
			t.Errorf("it imports %s", line)
		}
	}
}
