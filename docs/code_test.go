package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// code names the files that a page shows lines of, in its first line.
var code = regexp.MustCompile(`^<!-- code: (.+) -->\n`)

// The Go code of pages that say where it is from is in those files, which are compiled and tested.
func TestCodePlaces(t *testing.T) {
	names, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		from := code.FindSubmatch(text)
		if from == nil {
			continue
		}
		pages++
		here := map[string]bool{"…": true, "": true}
		for _, file := range strings.Fields(string(from[1])) {
			program, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(program)) {
				here[strings.TrimSpace(line)] = true
			}
		}
		for _, block := range strings.Split(string(text), "```go\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			for line := range strings.Lines(block) {
				if line = strings.TrimSpace(line); !here[line] {
					t.Errorf("%s shows a line that %s does not have: %s", name, from[1], line)
				}
			}
		}
	}
	if pages < 4 {
		t.Errorf("only %d pages say where their code is from", pages)
	}
}

// operations.md lists the tables that there are: those that a backup has to have.
func TestTablesGolden(t *testing.T) {
	schema, err := os.ReadFile("../sqlschema/testdata/schema.sqlite.sql")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "## Back up and move")
	part, _, _ = strings.Cut(part, "\n## ")
	listed := map[string]bool{}
	for _, name := range regexp.MustCompile("`(dbcron_[a-z_]+)`").FindAllStringSubmatch(part, -1) {
		listed[name[1]] = true
	}
	tables := regexp.MustCompile(`(?m)^CREATE TABLE "?(dbcron_[a-z_]+)"? `).FindAllStringSubmatch(string(schema), -1)
	if all := strings.Count(string(schema), "CREATE TABLE "); len(tables) != all { // a guard that reads by a pattern proves that it sees all
		t.Fatalf("found the names of %d tables, of %d", len(tables), all)
	}
	for _, name := range tables {
		if !listed[name[1]] {
			t.Errorf("operations.md does not list %s among what to back up", name[1])
		}
		delete(listed, name[1])
	}
	for name := range listed {
		t.Errorf("operations.md lists %s, which is no table", name)
	}
}
