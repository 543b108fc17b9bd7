package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/httpapi"
)

// TestGoldenOperations compares the operations that docs/http-operations.md lists with those of the API's document.
func TestGoldenOperations(t *testing.T) {
	file := filepath.Join(root(t), "docs", "http-operations.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := operationTables(t)
	block := regexp.MustCompile(`(?s)(<!-- operations -->\n)(.*?)(<!-- end -->)`)
	found := block.FindSubmatch(page)
	switch {
	case found == nil:
		t.Fatal("docs/http-operations.md has no place for the operations")
	case *updateGolden:
		if err := os.WriteFile(file, block.ReplaceAll(page, []byte("${1}"+strings.ReplaceAll(want, "$", "$$")+"${3}")), 0o644); err != nil {
			t.Fatal(err)
		}
	case string(found[2]) != want:
		t.Errorf("docs/http-operations.md differs from the API's document: run make golden, and read the diff. It has\n%s", want)
	}
}

// operationTables are a table of operations for each tag. Those of a job by its id alone are left out: the page has a sentence about them.
func operationTables(t *testing.T) string {
	t.Helper()
	text, err := httpapi.Document("0")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]struct {
			Summary  string
			Tags     []string
			Security []map[string][]string
		}
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	tables := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for _, method := range []string{"get", "put", "post", "delete"} {
			o, has := document.Paths[path][method]
			delete(document.Paths[path], method)
			short := strings.TrimPrefix(path, "/api/v1")
			if !has || strings.HasPrefix(short, "/jobs/{id}") {
				continue
			}
			tables[o.Tags[0]] += fmt.Sprintf("| `%s %s` | %s | %s |\n", strings.ToUpper(method), short, o.Summary, o.Security[0]["token"][0])
		}
		if len(document.Paths[path]) != 0 {
			t.Errorf("%s has methods that the page does not list", path)
		}
	}
	var b strings.Builder
	for _, tag := range slices.Sorted(maps.Keys(tables)) {
		fmt.Fprintf(&b, "\n## %s%s\n\n| operation | purpose | scope |\n|---|---|---|\n%s", strings.ToUpper(tag[:1]), tag[1:], tables[tag])
	}
	return b.String() + "\n"
}
