package dialect_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/engines"
	// All packages that have statements:
	_ "github.com/dbcron/dbcron/httpapi"
	_ "github.com/dbcron/dbcron/internal/ops/notify"
	"github.com/dbcron/dbcron/internal/sqlrun"
	_ "github.com/dbcron/dbcron/lock"
	_ "github.com/dbcron/dbcron/queue"
	_ "github.com/dbcron/dbcron/scheduler"
	_ "github.com/dbcron/dbcron/sqlschema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The golden files show reviewers the SQL of all engines side by side.
func TestGoldenStatements(t *testing.T) {
	var out strings.Builder
	out.WriteString("-- Every statement as each engine gets it, by `make golden`. A list or a row stands once.\n")
	names := map[string]bool{}
	for _, s := range sqlrun.Statements() {
		if names[s.Name] {
			t.Errorf("two statements are called %s", s.Name)
		}
		names[s.Name] = true
		fmt.Fprintf(&out, "\n== %s\n", s.Name)
		for _, v := range variants(s) {
			if strings.HasPrefix(v.text, "error:") {
				t.Errorf("%s on %v: %s", s.Name, v.engines, v.text)
			}
			fmt.Fprintf(&out, "\n%s:\n%s\n", strings.Join(v.engines, ", "), indent(v.text))
		}
	}
	golden(t, filepath.Join("..", "testdata", "statements.golden"), out.String())
}

type variant struct {
	engines []string
	text    string
}

// variants renders a statement for all engines and groups those with the same text.
// get the same text.
func variants(s *sqlrun.Stmt) []variant {
	var all []variant
	for _, d := range engines.All {
		text := s.Text(d)
		i := slices.IndexFunc(all, func(v variant) bool { return v.text == text })
		if i < 0 {
			i, all = len(all), append(all, variant{text: text})
		}
		all[i].engines = append(all[i].engines, d.Name)
	}
	return all
}

func indent(text string) string {
	return "\t" + strings.ReplaceAll(text, "\n", "\n\t")
}

// golden compares got with a file. With -update it writes the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	lines, old := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range lines {
		if i >= len(old) || lines[i] != old[i] {
			t.Fatalf("%s:%d is not what the code makes: run make golden, and read the diff\ngot  %s", file, i+1, lines[i])
		}
	}
	t.Fatalf("%s has more than the code makes: run make golden, and read the diff", file)
}
