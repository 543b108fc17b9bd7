// Command report writes what was proven into docs/reliability.md, simulation/mutants.md and README.md, in place of what stands between
// markers there. It reads files of one folder, and leaves the tables alone whose file is not there:
//
//	simulation.json   of make sim TOTALS=file
//	mutants.json      of make sim-mutants TOTALS=file
//	servers.json      of make faults TOTALS=file, which is what go test -json prints
//	soak.json         of make soak TOTALS=file, likewise
//	recovery.json     of make recovery, which calls this command
//
// make reliability makes the first three.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// A Made says how figures were made.
type Made struct{ Command, Commit string }

// sections are the parts of the page that are written, by their marker, each from a file.
var sections = []struct {
	marker, file string
	write        func(text []byte) (string, error)
}{
	{"simulation", "simulation.json", simulation},
	{"mutants", "mutants.json", mutants},
	{"servers", "servers.json", servers},
	{"soak", "soak.json", soak},
	{"recovery", "recovery.json", recovery},
}

func main() {
	dir := flag.String("dir", ".", "the folder of the files")
	page := flag.String("page", "docs/reliability.md", "the page to write")
	readme := flag.String("readme", "README.md", "the page that names figures of it")
	injected := flag.String("injected", "simulation/mutants.md", "the page of faults put into copies of the product")
	flag.Parse()
	if err := run(*dir, *page, *injected, *readme); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(dir, page, injected, readme string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	faults, err := os.ReadFile(injected)
	if err != nil {
		return err
	}
	front, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	for _, s := range sections {
		input, err := os.ReadFile(filepath.Join(dir, s.file))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		table, err := s.write(input)
		if err != nil {
			return fmt.Errorf("%s: %w", s.file, err)
		}
		on, name := &text, page
		if s.marker == "mutants" {
			on, name = &faults, injected
		}
		if *on, err = replace(*on, s.marker, "\n"+table); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		marker, sum := s.marker+".sum", sums[s.marker]
		if sum == "" {
			continue
		}
		if text, err = replace(text, marker, sum); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if !bytes.Contains(front, []byte("<!-- "+marker+" -->")) {
			continue
		}
		if front, err = replace(front, marker, sum); err != nil {
			return fmt.Errorf("%s: %w", readme, err)
		}
	}
	if err := os.WriteFile(page, text, 0o644); err != nil { //nolint:gosec // a page of the repository
		return err
	}
	if err := os.WriteFile(injected, faults, 0o644); err != nil { //nolint:gosec // a page of the repository
		return err
	}
	return os.WriteFile(readme, front, 0o644) //nolint:gosec // a page of the repository
}

// sums are the sentences about a section that the README has, too.
var sums = map[string]string{}

// replace replaces what stands between the markers <!-- name --> and <!-- /name -->.
func replace(page []byte, name, text string) ([]byte, error) {
	begin, end := []byte("<!-- "+name+" -->"), []byte("<!-- /"+name+" -->")
	from, to := bytes.Index(page, begin), bytes.Index(page, end)
	if from < 0 || to < from {
		return nil, fmt.Errorf("it has no markers %s and %s", begin, end)
	}
	var all []byte
	all = append(all, page[:from+len(begin)]...)
	all = append(all, text...)
	return append(all, page[to:]...), nil
}

// source says which commands made figures, of which commit, and where.
func source(runs []Made) string {
	var commands, commits []string
	for _, run := range runs {
		commands = appendNew(commands, "`"+run.Command+"`")
		commits = appendNew(commits, run.Commit)
	}
	return fmt.Sprintf("%s, at %s, on %s.\n\n", strings.Join(commands, ", "), strings.Join(commits, ", "), machine())
}

func appendNew(all []string, one string) []string {
	for _, o := range all {
		if o == one {
			return all
		}
	}
	return append(all, one)
}

// machine describes the host.
func machine() string {
	cores := fmt.Sprintf("%d cores", runtime.NumCPU())
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			cores += " (" + strings.TrimSpace(value) + ")"
			break
		}
	}
	return cores + ", " + runtime.Version()
}

// A table is one in Markdown.
type table struct{ strings.Builder }

func (t *table) row(cells ...string) {
	t.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// head writes the titles of the columns, and the line below them.
func (t *table) head(cells ...string) {
	t.row(cells...)
	t.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
}

// thousands writes a number with commas.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
