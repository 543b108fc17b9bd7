package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// TestSettingsInDocs: pages have the tables of settings as they are. With -update it writes them.
func TestSettingsInDocs(t *testing.T) {
	var schedules, jobs []string
	for _, s := range scheduler.Settings() {
		if name, ok := strings.CutPrefix(s.Name, "job_"); ok {
			jobs = append(jobs, docRow(name, &s))
		} else {
			schedules = append(schedules, docRow(s.Name, &s))
		}
	}
	var queues []string
	for _, s := range admin.Settings() {
		queues = append(queues, docRow("--"+s.Flag(), &s))
	}
	for _, page := range []struct {
		name, table string
		rows        []string
	}{
		{"schedule-files.md", "schedules", schedules},
		{"schedule-files.md", "jobs of schedules", jobs},
		{"queue-cli.md", "queues", queues},
	} {
		path := filepath.Join(root(t), "docs", page.name)
		text, err := os.ReadFile(path)
		must(t, err)
		begin, end := fmt.Sprintf("<!-- settings of %s -->\n", page.table), "\n<!-- end -->"
		before, after, found := strings.Cut(string(text), begin)
		is, after, ended := strings.Cut(after, end)
		if !found || !ended {
			t.Errorf("docs/%s has no table between %q and %q", page.name, begin, end)
			continue
		}
		want := "\n| setting | values | default | |\n|---|---|---|---|\n" + strings.Join(page.rows, "")
		switch {
		case is == want:
		case *updateGolden:
			must(t, os.WriteFile(path, []byte(before+begin+want+end+after), 0o644)) //nolint:gosec // a page for all
		default:
			t.Errorf("docs/%s has another table of settings of %s than the code; write it with go test ./cmd/dbcron -run SettingsInDocs -update", page.name, page.table)
		}
	}
}

// docRow is a line of a table in a page.
func docRow[T any](name string, s *setting.Setting[T]) string {
	values := map[setting.Kind]string{
		setting.Text: s.Shape, setting.Duration: "duration", setting.Count: "number", setting.Size: "size", setting.Instant: "time",
		setting.Flag: "`true`, `false`",
	}[s.Kind]
	for _, word := range s.Words {
		if values != "" {
			values += ", "
		}
		values += "`" + word + "`"
	}
	help := strings.TrimSuffix(s.Help, ".")
	if s.Only != "" && !strings.HasPrefix(s.Name, "job_") {
		help += "; only for " + s.Only
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, values, s.Default(), help)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
