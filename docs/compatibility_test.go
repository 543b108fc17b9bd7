package docs

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var servers = flag.String("servers", "", "the servers whose rows of compatibility.md have to be as new as what they test, or all: see ADR 73")

// A ran is a row of compatibility.md that tools/compat has written.
type ran struct{ server, commit, row string }

// rows are those that end with the command that writes them.
func rows(t *testing.T) (all []ran) {
	t.Helper()
	page, err := os.ReadFile("compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("^\\| .* \\| ([^|]*) \\| `make compat SERVERS=(\\S+)` \\|$")
	at := regexp.MustCompile(`^([0-9a-f]{8,}), \d{4}-\d\d-\d\d$`)
	for line := range strings.SplitSeq(string(page), "\n") {
		row := command.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		told := at.FindStringSubmatch(row[1])
		if told == nil {
			t.Errorf("a row of %s does not say at which commit and day it ran: %q", row[2], row[1])
			continue
		}
		all = append(all, ran{row[2], told[1], line})
	}
	if len(all) < 15 {
		t.Errorf("%d rows were seen", len(all))
	}
	return all
}

// Each row of compatibility.md says at which commit and day it ran.
func TestCompatibilityRows(t *testing.T) { rows(t) }

// tests are the files about which a row of a server says something that the tests of each change do not: what is sent to it, and
// what its own test consists of.
func (r ran) tests() []string {
	family := "mysql"
	if strings.HasPrefix(r.server, "postgres") || strings.HasPrefix(r.server, "patroni") {
		family = "postgres"
	}
	all := []string{"testdata/statements.golden", "sqlschema/migrations/" + family, ":(glob)dialect/*.go", "dialect/" + family, ":(exclude,glob)dialect/**/*_test.go"}
	switch {
	case strings.HasSuffix(r.server, "-failover"):
		return append(all, "faults/failover_linux_test.go")
	case r.server == "vitess-page":
		return append(all, "docs/vitess.md")
	case r.server == "two-mysql", r.server == "vitess-shards":
		return append(all, "docs/scaling.md")
	}
	return all
}

// A row of compatibility.md is as new as the newest change of what it tests, and has not failed: make newest, make proof.
func TestCompatibilityIsCurrent(t *testing.T) {
	if *servers == "" {
		t.Skip("make newest, make proof")
	}
	wanted := strings.Fields(*servers)
	all := rows(t)
	for _, server := range wanted {
		if server != "all" && !slices.ContainsFunc(all, func(r ran) bool { return r.server == server }) {
			t.Errorf("%s has no row", server)
		}
	}
	for i, r := range all {
		if i > 0 && all[i-1].server == r.server {
			continue // of the same run
		}
		why := r.outdated(t)
		switch {
		case why == "":
		case wanted[0] == "all" || slices.Contains(wanted, r.server):
			t.Errorf("%s: %s: run make compat SERVERS=%s on a commit of main", r.server, why, r.server)
		default:
			t.Logf("%s: %s", r.server, why)
		}
	}
}

// outdated says why a row says nothing about what there is now.
func (r ran) outdated(t *testing.T) string {
	t.Helper()
	if strings.Contains(r.row, "| fails |") {
		return "it fails"
	}
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = ".."
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := git("merge-base", "--is-ancestor", r.commit, "HEAD"); err != nil {
		return "its commit " + r.commit + " is not one of those that lead to this one " + out
	}
	changed, err := git(append([]string{"diff", "--name-only", r.commit, "--"}, r.tests()...)...)
	if err != nil || changed == "" {
		return changed
	}
	files := strings.Fields(changed)
	return fmt.Sprintf("since %s, %d of the files that it tests have changed, such as %s", r.commit, len(files), files[len(files)-1])
}
