package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	place   = regexp.MustCompile("`([^`]+)`")
)

// pages are all pages of the project without their blocks of code, by their path from here.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := texts(t)
	for name, text := range all {
		all[name] = fenced.ReplaceAllString(text, "")
	}
	return all
}

// texts are all pages of the project.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	read := func(name string) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.ToSlash(name)] = string(text)
	}
	for _, name := range []string{"../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md", "../SECURITY.md"} {
		read(name)
	}
	err := filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".md") {
			read(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anchor is what a link calls a heading.
func anchor(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		}
		return -1
	}, strings.ToLower(strings.TrimSpace(text)))
}

// A link leads to a file that is there, and to a heading that it has.
func TestLinks(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			file, part, _ := strings.Cut(found[1], "#")
			target := page
			if file != "" {
				target = strings.TrimPrefix(filepath.ToSlash(filepath.Join(filepath.Dir(page), file)), "../docs/")
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", page, found[1])
				continue
			}
			if part == "" {
				continue
			}
			has := false
			for _, h := range heading.FindAllStringSubmatch(all[target], -1) {
				has = has || anchor(h[1]) == part
			}
			if !has {
				t.Errorf("%s links to %s, where no heading is called so", page, found[1])
			}
		}
	}
}

// The index, README.md, leads to each page.
func TestIndex(t *testing.T) {
	all := pages(t)
	for name := range all {
		if !strings.Contains(name, "/") && name != "README.md" && !strings.Contains(all["README.md"], "]("+name) {
			t.Errorf("README.md does not lead to %s", name)
		}
	}
}

// Each place that CONTRIBUTING.md names for a change is there: a file, or a folder and a file's
// pattern in it.
func TestPlaces(t *testing.T) {
	_, table, found := strings.Cut(pages(t)["../CONTRIBUTING.md"], "## Where to change what\n")
	if !found {
		t.Fatal("CONTRIBUTING.md does not say where to change what")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	n := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		for _, named := range place.FindAllStringSubmatch(cells[2], -1) {
			if n++; !strings.ContainsAny(named[1], "/.") {
				continue // a word of code
			}
			if is, err := filepath.Glob(filepath.Join("..", named[1])); err != nil || len(is) == 0 {
				t.Errorf("CONTRIBUTING.md names %s, which is not there: %v", named[1], err)
			}
		}
	}
	if n < 20 {
		t.Errorf("CONTRIBUTING.md names only %d places", n)
	}
}
