// Package docs has the project's pages, so that the program can print them where there is no folder of them.
package docs

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.md
var files embed.FS

// Page returns the Markdown of a page, such as grants or grants.md, and whether there is one.
func Page(name string) (string, bool) {
	text, err := files.ReadFile(strings.TrimSuffix(name, ".md") + ".md")
	return string(text), err == nil
}

// Pages are the names of all pages but the index, in alphabetical order.
func Pages() (names []string) {
	all, _ := fs.Glob(files, "*.md")
	for _, file := range all {
		if name := strings.TrimSuffix(file, ".md"); name != "README" {
			names = append(names, name)
		}
	}
	return names
}
