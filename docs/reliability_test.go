package docs

import (
	"os"
	"regexp"
	"testing"
)

// The figures of reliability that the README names are those of the page.
func TestFigures(t *testing.T) {
	sentence := regexp.MustCompile(`<!-- (\w+\.sum) -->(.*?)<!-- /`)
	read := func(name string) map[string]string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, found := range sentence.FindAllStringSubmatch(string(text), -1) {
			all[found[1]] = found[2]
		}
		return all
	}
	page, front := read("reliability.md"), read("../README.md")
	if len(page) != 3 {
		t.Errorf("the page has %d sentences: %v", len(page), page)
	}
	for name, text := range front {
		if page[name] != text {
			t.Errorf("%s: the README says %q, and the page %q", name, text, page[name])
		}
	}
}
