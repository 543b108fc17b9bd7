package dialect_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var (
	// What statements call columns and tables of their own: alias, column of a JSON table, common table expression.
	aliases = regexp.MustCompile(`\bAS ([a-z]\w*)|\b([a-z]\w*) (?:BIGINT|LONGTEXT)[A-Z0-9a-z ]* PATH|\bWITH ([a-z]\w*) AS`)

	// What migrations call columns.
	columns = regexp.MustCompile(`(?m)^ {4}([a-z]\w*) +[A-Z]`)
)

// Engines that speak MySQL's protocol reserve more words than MySQL does. The names of columns, and those in statements, are none.
func TestNamesAreNotReserved(t *testing.T) {
	reserved := map[string]string{}
	list, err := os.ReadFile(filepath.Join("..", "testdata", "reserved.words"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if word, engines, ok := strings.Cut(strings.TrimSpace(line), " "); ok && word != "#" {
			reserved[word] = engines
		}
	}
	found := 0
	check := func(where, text string, names *regexp.Regexp) {
		for _, m := range names.FindAllStringSubmatch(text, -1) {
			found++
			if name := strings.Join(m[1:], ""); reserved[name] != "" {
				t.Errorf("%s names something %s, a reserved word of %s", where, name, reserved[name])
			}
		}
	}
	for _, s := range sqlrun.Statements() {
		check(s.Name, s.Text(mysql.Dialect), aliases)
	}
	files, err := filepath.Glob(filepath.Join("..", "sqlschema", "migrations", "mysql", "*.sql"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		check(file, string(text), columns)
	}
	if found < 500 {
		t.Errorf("only %d names were found", found)
	}
}
