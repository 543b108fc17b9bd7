package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "first.db")
	for range 2 { // the second time its tables and its schedule are there
		if err := run(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
}

// What README.md shows of this program is in it.
func TestShown(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	here := map[string]bool{}
	for line := range strings.Lines(string(program)) {
		here[strings.TrimSpace(line)] = true
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) < 3 {
		t.Fatalf("README.md shows %d programs", len(blocks))
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "…" && !here[line] {
				t.Errorf("README.md shows a line that the program does not have: %s", line)
			}
		}
	}
}
