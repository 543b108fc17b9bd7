package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A block is a list of commands that a page shows.
type block struct {
	text   string
	line   int    // of the page, where its fence is
	notRun string // why it is not run; empty: it is
}

var (
	fenceLine  = regexp.MustCompile("^```(\\w*)$")
	notRunLine = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	indented   = regexp.MustCompile(`^    \S`)
	// commands are beginnings of lines that somebody is meant to type.
	commands = regexp.MustCompile(`^ *(?:(?:dbcron|make|go|curl|docker|kubectl|apt|systemctl|supervisorctl|install|useradd|python3|node|sh|psql|mysql) [^=]|export [A-Z])`)
)

// shellBlocks returns the blocks of a page that are shell commands, and what is wrong with how
// it shows them.
func shellBlocks(page string) (all []block, wrong []string) {
	fence, before := "", "" // the language of the block that the line is in; the line before it
	for n, line := range strings.Split(page, "\n") {
		m := fenceLine.FindStringSubmatch(line)
		switch {
		case m != nil && fence == "":
			if fence = m[1]; fence == "" {
				fence = "text"
			}
			if fence == "sh" {
				b := block{line: n + 1}
				if why := notRunLine.FindStringSubmatch(before); why != nil {
					b.notRun = why[1]
				}
				all = append(all, b)
			}
		case m != nil:
			fence = ""
		case fence == "sh":
			all[len(all)-1].text += line + "\n"
		case (fence == "text" || fence == "" && indented.MatchString(line)) && commands.MatchString(line) && !strings.Contains(line, "│"):
			wrong = append(wrong, "shows a command, and not in a block of ```sh: "+strings.TrimSpace(line))
		}
		if strings.Contains(before, "<!-- not run") && line != "```sh" {
			wrong = append(wrong, "says what is not run, and no block of ```sh follows: "+before)
		}
		before = line
	}
	return all, wrong
}

// shownPages are the pages whose blocks are run, by their path from the project's folder.
func shownPages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	if err != nil || len(names) == 0 {
		t.Fatal("no pages", err)
	}
	pages := map[string]string{}
	for _, name := range append(names, filepath.Join(root(t), "README.md"), filepath.Join(root(t), "examples", "compose", "README.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Rel(root(t), name)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.ToSlash(path)] = string(text)
	}
	return pages
}

// Commands are shown in blocks that are run, or that say why they are not.
func TestShownCommands(t *testing.T) {
	n := 0
	for page, text := range shownPages(t) {
		blocks, wrong := shellBlocks(text)
		for _, what := range wrong {
			t.Errorf("%s %s", page, what)
		}
		n += len(blocks)
	}
	if n < 40 {
		t.Errorf("the pages show only %d blocks of commands", n)
	}
}
