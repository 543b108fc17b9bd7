package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// across lives through each scenario in a process of its own: what a process has done before, such as compiling
// statements, is part of what the runtime draws.
type across struct {
	t   *testing.T
	bin string
	dir string

	mu     sync.Mutex
	all    []outcome
	shrunk map[string]int // seeds that were shrunk, by what they break
}

// acrossProcesses lives through scenarios, several at a time.
func acrossProcesses(t *testing.T, bin string, all []scenario) {
	t.Helper()
	a := newAcross(t, bin)
	jobs := make(chan scenario)
	var group sync.WaitGroup
	for range *flagAcross {
		group.Go(func() {
			for s := range jobs {
				a.seed(s)
			}
		})
	}
	for _, s := range all {
		jobs <- s
	}
	close(jobs)
	group.Wait()
	conclude(t, a.all, *flagWith == "")
}

func newAcross(t *testing.T, bin string) *across {
	t.Helper()
	a := &across{t: t, bin: bin, dir: t.TempDir(), shrunk: map[string]int{}}
	contents, err := template()
	if err == nil {
		err = os.WriteFile(a.file("template"), contents, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *across) file(name string) string { return filepath.Join(a.dir, name) }

// overlay returns the file for go build -overlay that fixes what Go's runtime draws.
func overlay(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "run", "./overlay").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// build builds this test with an overlay.
func build(t *testing.T, overlay string) (bin string) {
	t.Helper()
	bin = filepath.Join(t.TempDir(), "simulation.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", bin, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// longest is how long a life may take. A minute of one takes seconds of a processor, which others may be using.
const longest = time.Hour

// live lives through a scenario in a process, and returns what it has printed. more are further flags.
func (a *across) live(ctx context.Context, s scenario, more ...string) (o outcome, text string, err error) {
	dir, err := os.MkdirTemp(a.dir, "life")
	if err != nil {
		return o, "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "outcome")
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	args := append(s.flags(), "-test.run=^TestSimulation$", "-test.timeout=0", "-outcome="+file, "-template="+a.file("template"),
		fmt.Sprint("-lines=", *flagLines))
	child := exec.CommandContext(ctx, a.bin, append(args, more...)...)
	child.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off") // from the beginning, since packages initialize, too
	out, err := child.CombinedOutput()
	text = strings.TrimSuffix(strings.TrimSuffix(string(out), "FAIL\n"), "PASS\n")
	contents, missing := os.ReadFile(file)
	if missing == nil {
		missing = json.Unmarshal(contents, &o)
	}
	if missing != nil {
		kind := "crash"
		if ctx.Err() != nil {
			kind = "endless"
		}
		o = outcome{Workload: s.workload, Seed: s.seed, Broken: []violation{{Kind: kind, Text: text}}}
	}
	return o, text, err
}

// seed lives through a scenario, twice if that was asked for, and shrinks it if it breaks a promise.
func (a *across) seed(s scenario) {
	var more []string
	if *flagShow != "" {
		more = append(more, "-show="+*flagShow)
	}
	o, text, err := a.live(a.t.Context(), s, more...)
	if err != nil && len(o.Broken) == 0 {
		a.t.Errorf("%s: %v\n%s", s, err, text)
	}
	if len(o.Broken) > 0 && a.mayShrink(s, &o) {
		text = a.shrink(s, o.Broken[0].Kind) + text
	}
	a.mu.Lock()
	a.all = append(a.all, o)
	if len(o.Broken) > 0 {
		a.t.Errorf("%s\n%s", s, text)
	} else if *flagShow != "" {
		fmt.Print(text)
	}
	a.mu.Unlock()
	if *flagTwice {
		a.again(s, &o)
	}
}

// again lives through a scenario once more, and fails the test if something else happens.
func (a *across) again(s scenario, first *outcome) {
	second, _, _ := a.live(a.t.Context(), s)
	if second.Sum == first.Sum && second.Trips == first.Trips {
		return
	}
	var lines [2][]string
	for i := range lines { // since then they may do the same, or something else in another place
		file := a.file(fmt.Sprint(s.workload, s.seed, "events", i))
		if _, _, err := a.live(a.t.Context(), s, "-events="+file); err != nil {
			a.t.Log(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			a.t.Error(err)
		}
		lines[i] = strings.Split(string(text), "\n")
	}
	for i := range min(len(lines[0]), len(lines[1])) {
		if lines[0][i] != lines[1][i] {
			a.t.Errorf("%s has done something else the second time, from event %d of %d on:\n%s\n%s", s, i, len(lines[0]), lines[0][i], lines[1][i])
			return
		}
	}
	a.t.Errorf("%s has done something else the second time, and the same the third and fourth time: %x, %x", s, first.Sum, second.Sum)
}

func writeJSON(t *testing.T, file string, what any) {
	t.Helper()
	text, err := json.Marshal(what)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
