package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// eventsVariable tells gotestsum where to write the events of go test -json. Other commands ignore
// it, and then there is no progress to print.
const eventsVariable = "GOTESTSUM_JSONFILE"

// interval is the time between two lines of progress.
const interval = 20 * time.Second

// An event is a line of go test -json; see go doc test2json.
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
}

// name returns the package's path in this module, and the test.
func (e event) name() string {
	return strings.TrimSpace(strings.TrimPrefix(e.Package, "github.com/dbcron/dbcron/") + " " + e.Test)
}

// A progress follows a file of events while go test appends to it. Its methods are safe for
// concurrent use.
type progress struct {
	file string
	from time.Time

	mu      sync.Mutex
	offset  int64
	rest    []byte               // an incomplete line
	running map[string]time.Time // names of packages and tests, and when they began or went on
	parents map[string]bool      // names of packages and tests that have begun a test
	failed  []string
	passed  int
	skipped int
	ended   []event
}

func newProgress(file string) *progress {
	//nolint:forbidigo // how long tests have been running
	return &progress{file: file, from: time.Now(), running: map[string]time.Time{}, parents: map[string]bool{}}
}

// every prints a line after each interval until done is closed.
func (p *progress) every(done <-chan struct{}, out io.Writer) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			p.line(out, 6)
		}
	}
}

// line prints how many tests ended and up to max of those that run, the longest first.
func (p *progress) line(out io.Writer, max int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.read() {
		return
	}
	fmt.Fprintf(out, "== %s: %d passed, %d failed, %d skipped", time.Since(p.from).Round(time.Second), p.passed, len(p.failed), p.skipped)
	names := slices.SortedFunc(maps.Keys(p.running), func(a, b string) int {
		return cmp.Or(p.running[a].Compare(p.running[b]), cmp.Compare(a, b))
	})
	names = slices.DeleteFunc(names, func(name string) bool { return p.parents[name] })
	if p.offset == 0 {
		fmt.Fprint(out, "; compiling")
	}
	for i, name := range names[:min(max, len(names))] {
		fmt.Fprint(out, []string{"; running: ", ", "}[min(i, 1)], name, " ", time.Since(p.running[name]).Round(time.Second))
	}
	if n := len(names) - max; n > 0 {
		fmt.Fprintf(out, ", and %d more", n)
	}
	fmt.Fprintln(out)
}

// interrupted prints everything that runs, and what failed.
func (p *progress) interrupted(out io.Writer) {
	p.line(out, 1000)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.failed {
		fmt.Fprintln(out, "== failed:", name)
	}
}

// slowest prints the ten tests without subtests that took longest.
func (p *progress) slowest(out io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read()
	slow := slices.DeleteFunc(p.ended, func(e event) bool { return p.parents[e.name()] || e.Elapsed < 1 })
	slices.SortFunc(slow, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for i, e := range slow[:min(10, len(slow))] {
		fmt.Fprintf(out, "%s%6.1f s  %s\n", []string{"\n=== Slowest\n", ""}[min(i, 1)], e.Elapsed, e.name())
	}
}

// read takes in what was appended to the file. It returns false if there is none: the command does
// not write it. While go test compiles, the file is empty. The caller holds p.mu.
func (p *progress) read() bool {
	f, err := os.Open(p.file)
	if err != nil {
		return false
	}
	defer f.Close()
	more, _ := io.ReadAll(io.NewSectionReader(f, p.offset, 1<<62)) // what could not be read is read next time
	p.offset += int64(len(more))
	p.rest = append(p.rest, more...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			return true
		}
		p.rest = rest
		var e event
		if json.Unmarshal(line, &e) == nil {
			p.take(e)
		}
	}
}

func (p *progress) take(e event) {
	name := e.name()
	switch e.Action {
	case "start", "run", "cont":
		p.running[name] = e.Time
		if e.Test != "" {
			p.parents[name[:strings.LastIndexAny(name, " /")]] = true
		}
		return
	case "pause": // until a parallel test may run
	case "pass", "fail", "skip":
		if e.Test == "" {
			break
		}
		p.ended = append(p.ended, e)
		switch e.Action {
		case "pass":
			p.passed++
		case "skip":
			p.skipped++
		default:
			p.failed = append(p.failed, name)
		}
	default:
		return
	}
	delete(p.running, name)
}
