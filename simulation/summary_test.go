package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// A summary adds up the runs of a workload.
type summary struct {
	Workload              string
	Runs, Trips           int
	Virtual, Took         time.Duration
	Done, Reached, Broken map[string]int
}

func (s *summary) add(r *report, took time.Duration) {
	s.Runs++
	s.Trips += r.trips
	s.Virtual += r.virtual
	s.Took += took
	addTo(s.Done, r.done)
	addTo(s.Reached, r.reached)
	for _, v := range r.broken {
		s.Broken[v.kind]++
	}
}

func addTo(sum, more map[string]int) {
	for name, n := range more {
		sum[name] += n
	}
}

// printSummaries prints a table of what was done, reached and broken.
func printSummaries(out io.Writer, all []summary) {
	for i := range all {
		s := &all[i]
		fmt.Fprintf(out, "%s: %d seeds, %v of virtual time, %d round trips, in %v\n", s.Workload, s.Runs, s.Virtual.Round(time.Second),
			s.Trips, s.Took.Round(100*time.Millisecond))
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, part := range []struct {
			title  string
			counts map[string]int
		}{{"done", s.Done}, {"reached", s.Reached}, {"violations", s.Broken}} {
			names := slices.SortedFunc(maps.Keys(part.counts), func(a, b string) int {
				return cmp.Or(part.counts[b]-part.counts[a], strings.Compare(a, b))
			})
			for _, name := range names {
				fmt.Fprintf(table, "  %s\t%d\t%s\n", part.title, part.counts[name], name)
			}
			if len(names) == 0 {
				fmt.Fprintf(table, "  %s\t0\t\n", part.title)
			}
		}
		table.Flush()
	}
}

func writeSums(t *testing.T, file string, all []summary) {
	t.Helper()
	text, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// acrossProcesses runs each seed in a process of its own: what a process has done before, such as compiling
// statements, is part of what the runtime draws.
func acrossProcesses(t *testing.T, drawn bool) {
	t.Helper()
	a := &across{t: t, dir: t.TempDir(), byName: map[string]*summary{}}
	contents, err := template()
	if err == nil {
		err = os.WriteFile(a.file("template"), contents, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	jobs := make(chan func())
	var group sync.WaitGroup
	for range *flagAcross {
		group.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	for _, one := range workloads {
		if *flagWorkload != "" && !slices.Contains(strings.Split(*flagWorkload, ","), one.name) {
			continue
		}
		for seed := *flagFirst; seed < *flagFirst+uint64(*flagSeeds); seed++ {
			jobs <- func() { a.seed(one.name, seed) }
		}
	}
	close(jobs)
	group.Wait()
	var all []summary
	for _, one := range workloads {
		if sum := a.byName[one.name]; sum != nil {
			all = append(all, *sum)
		}
	}
	conclude(t, all, drawn)
}

// across is a run of many processes.
type across struct {
	t      *testing.T
	dir    string
	mu     sync.Mutex
	byName map[string]*summary
}

func (a *across) file(name ...any) string {
	return filepath.Join(a.dir, strings.ReplaceAll(strings.TrimSpace(fmt.Sprintln(name...)), " ", "-"))
}

// seed runs a seed of a workload, twice if that was asked for.
func (a *across) seed(workload string, seed uint64) {
	times := 1
	if *flagTwice {
		times = 2
	}
	for n := range times {
		sums, events := a.file(workload, seed, "sums"), a.file(workload, seed, "events", n)
		args := append(slices.Clone(os.Args[1:]), "-test.v=false", "-across=0", "-sums="+sums, "-template="+a.file("template"),
			"-workload="+workload, fmt.Sprint("-first=", seed), "-seeds=1")
		if *flagTwice {
			args = append(args, "-events="+events)
		}
		child := exec.CommandContext(a.t.Context(), os.Args[0], args...)
		child.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off") // from the beginning: see folder
		out, err := child.CombinedOutput()
		if n == 0 {
			a.note(string(out), err, sums)
		}
	}
	if *flagTwice {
		a.compare(workload, seed)
	}
}

// note adds what a process has seen.
func (a *across) note(out string, err error, sums string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.t.Errorf("%v\n%s", err, out)
	} else if *flagShow != "" {
		fmt.Print(out)
	}
	var some []summary
	text, err := os.ReadFile(sums)
	if err == nil {
		err = json.Unmarshal(text, &some)
	}
	if err != nil {
		a.t.Error(err)
	}
	for i := range some {
		if sum := a.byName[some[i].Workload]; sum == nil {
			a.byName[some[i].Workload] = &some[i]
		} else {
			sum.merge(&some[i])
		}
	}
}

// compare fails the test if the two runs of a seed differ.
func (a *across) compare(workload string, seed uint64) {
	var lines [2][]string
	for n := range lines {
		text, err := os.ReadFile(a.file(workload, seed, "events", n))
		if err != nil {
			a.t.Error(err)
		}
		lines[n] = strings.Split(string(text), "\n")
	}
	for i := range min(len(lines[0]), len(lines[1])) {
		if lines[0][i] != lines[1][i] {
			a.t.Errorf("%s: seed %d has done something else the second time, from event %d of %d on:\n%s\n%s", workload, seed, i, len(lines[0]),
				lines[0][i], lines[1][i])
			return
		}
	}
	if len(lines[0]) != len(lines[1]) {
		a.t.Errorf("%s: seed %d had %d events the first time, and %d the second", workload, seed, len(lines[0]), len(lines[1]))
	}
}

func (s *summary) merge(o *summary) {
	s.Runs += o.Runs
	s.Trips += o.Trips
	s.Virtual += o.Virtual
	s.Took += o.Took
	addTo(s.Done, o.Done)
	addTo(s.Reached, o.Reached)
	addTo(s.Broken, o.Broken)
}
