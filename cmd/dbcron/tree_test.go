package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/docs"
)

// leaves are all commands that do something.
func leaves(c *cobra.Command) (all []*cobra.Command) {
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	for _, sub := range c.Commands() {
		all = append(all, leaves(sub)...)
	}
	return all
}

func emptyProgram() *program {
	return &program{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
}

// Each command shows how to use it, with lines that can be typed.
func TestExamples(t *testing.T) {
	for _, c := range leaves(emptyProgram().root(nil)) {
		shown := false
		for line := range strings.Lines(c.Example) {
			for _, words := range commandsOf(line) {
				shown = shown || strings.HasPrefix(strings.Join(words, " ")+" ", c.CommandPath()+" ")
				root := emptyProgram().root(nil)
				found, args, err := root.Find(words[1:])
				if err == nil {
					err = found.ParseFlags(args)
				}
				if err == nil {
					err = found.ValidateArgs(found.Flags().Args())
				}
				if err != nil || found.HasSubCommands() {
					t.Errorf("%s: the example %q: %v", c.CommandPath(), strings.TrimSpace(line), err)
				}
			}
		}
		if !shown {
			t.Errorf("%s: no example shows it", c.CommandPath())
		}
	}
}

// commandsOf are the command lines of dbcron in a line for the shell.
func commandsOf(line string) (all [][]string) {
	var words []string
	var word strings.Builder
	quote, inWord := rune(0), false
	end := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		end()
		if len(words) > 0 && words[0] == "dbcron" {
			all = append(all, words)
		}
		words = nil
	}
	for _, r := range strings.TrimSpace(line) {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ':
			end()
		case strings.ContainsRune("|;&()<>", r): // what follows < and > is a file, and no command of ours
			endCommand()
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	endCommand()
	return all
}

// Each command that is not a text, a stream or another program's prints JSON if it is asked to.
func TestOutputs(t *testing.T) {
	texts := map[string]bool{}
	for _, path := range textOnly {
		texts[path] = true
	}
	for _, c := range leaves(emptyProgram().root(nil)) {
		path := actionOf(c)
		if has := c.Flags().Lookup("output") != nil; has == texts[path] {
			t.Errorf("%s: has -o: %t, and is in textOnly: %t", path, has, texts[path])
		}
		delete(texts, path)
	}
	for path := range texts {
		t.Errorf("%s is in textOnly, and there is no such command", path)
	}
}

// Each command that opens a database runs on every engine.
func TestEverywhere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "testdata", "cli", everywhere))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := map[string]bool{ // without a database, or on each engine in another test
		"bench": true, "config check": true, "config show": true, "demo": true, "migrate down": true, "migrate sql": true,
		"migrate to": true, "notify test": true, "openapi": true, "version": true,
	}
	for _, c := range leaves(emptyProgram().root(nil)) {
		path := actionOf(c)
		if ran := regexp.MustCompile(`(?m)^(exec|exits|eventually) .*\bdbcron ` + path + `\b`).Match(text); ran == elsewhere[path] {
			t.Errorf("%s: is in %s: %t, and is left out: %t", path, everywhere, ran, elsewhere[path])
		}
		delete(elsewhere, path)
	}
	for path := range elsewhere {
		t.Errorf("%s is left out, and there is no such command", path)
	}
}

// Flags that take one of some words have the shell complete them.
func TestFlagWords(t *testing.T) {
	for _, c := range leaves(emptyProgram().root(nil)) {
		for _, name := range worded {
			f := c.Flags().Lookup(name)
			if f == nil || name == "by" && c.Name() != "stats" {
				continue
			}
			if words := flagWords(c, f); len(words) < 2 {
				t.Errorf("%s --%s takes %q", c.CommandPath(), name, words)
			}
		}
	}
}

// A value that a flag refuses is told in words about the value, and begins with the flag: in no command, of no type, does a message name
// a function of Go or how a parser of Go failed. Settings in files and in the environment have the same words: config.WrongValue.
func TestFlagsRefuseInWords(t *testing.T) {
	seen := 0
	for _, c := range leaves(emptyProgram().root(nil)) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			for _, value := range []string{"perhaps", "1e400", "99999999999999999999999", "-"} {
				err := c.ParseFlags([]string{"--" + f.Name + "=" + value})
				if err == nil {
					continue
				}
				seen++
				text := flagError(c, err).Error()
				for _, word := range []string{"strconv.", "time:", "invalid syntax", "ParseBool", "json:", "value out of range", "invalid argument"} {
					if strings.Contains(text, word) {
						t.Errorf("%s --%s=%s: %s", c.CommandPath(), f.Name, value, text)
					}
				}
				if !strings.HasPrefix(text, "--"+f.Name+": ") {
					t.Errorf("%s --%s=%s does not begin with the flag: %s", c.CommandPath(), f.Name, value, text)
				}
			}
		})
	}
	if seen < 100 {
		t.Errorf("only %d values were refused", seen)
	}
}

// What texts of the program say that dbcron help prints is there.
func TestHelpIsThere(t *testing.T) {
	named := regexp.MustCompile(`dbcron help ([a-z][a-z-]*(?:\.md)?)`)
	seen := 0
	for _, dir := range []string{".", "../../internal/ops/health", "../../internal/ops/checkup", "../../httpapi", "../../dashboard", "../../dialect/mysql"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range named.FindAllStringSubmatch(string(text), -1) {
				seen++
				if _, page := docs.Page(found[1]); page || found[1] == "help" {
					continue
				}
				if c, _, err := emptyProgram().root(nil).Find(found[1:]); err != nil || !c.HasParent() {
					t.Errorf("%s: dbcron help %s prints nothing", file, found[1])
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d texts are seen", seen)
	}
}
