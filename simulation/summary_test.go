package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// An outcome is what one life has shown.
type outcome struct {
	Workload      string
	Seed          uint64
	Knobs         map[string]int // numbers that were drawn or set
	Plain         map[string]int // the first one of those from which they are drawn
	Strikes       map[string]int // how often each fault has happened, or was left out, by its knob
	Done, Reached map[string]int // how much was done, by kind; situations
	Broken        []violation
	Trips         int
	Virtual, Took time.Duration
	Late          time.Duration // the latest takeover: see noticeLate
	Sum           uint64        // of all events
}

// A summary adds up the lives of a workload.
type summary struct {
	Workload              string
	Runs, Trips           int
	Virtual, Took         time.Duration
	Late                  time.Duration // the latest takeover
	Done, Reached, Broken map[string]int
	Seeds                 map[string]int // that reached a situation
	Claims                []string       `json:",omitempty"` // situations that some seeds must reach
}

// sumUp adds up lives, in the order of the workloads.
func sumUp(all []outcome) (sums []*summary) {
	for _, one := range workloads {
		sum := newSummary(one.name)
		for i := range all {
			if o := &all[i]; o.Workload == one.name {
				sum.add(o)
			}
		}
		if sum.Runs > 0 {
			sums = append(sums, sum)
		}
	}
	return sums
}

func newSummary(workload string) *summary {
	return &summary{Workload: workload, Done: map[string]int{}, Reached: map[string]int{}, Broken: map[string]int{}, Seeds: map[string]int{}}
}

func (s *summary) add(o *outcome) {
	s.Runs++
	s.Trips += o.Trips
	s.Virtual += o.Virtual
	s.Took += o.Took
	s.Late = max(s.Late, o.Late)
	addTo(s.Done, o.Done)
	addTo(s.Reached, o.Reached)
	for situation := range o.Reached {
		s.Seeds[situation]++
	}
	for _, v := range o.Broken {
		s.Broken[v.Kind]++
	}
}

func (s *summary) merge(o *summary) {
	s.Runs += o.Runs
	s.Trips += o.Trips
	s.Virtual += o.Virtual
	s.Took += o.Took
	s.Late = max(s.Late, o.Late)
	addTo(s.Done, o.Done)
	addTo(s.Reached, o.Reached)
	addTo(s.Broken, o.Broken)
	addTo(s.Seeds, o.Seeds)
}

func addTo(sum, more map[string]int) {
	for name, n := range more {
		sum[name] += n
	}
}

// totals are the sums of one or more runs, and which runs these were. faults/report writes them into
// docs/reliability.md.
type totals struct {
	Runs      []made
	Faults    []string // in order
	Workloads []*summary
}

// made says how figures were made.
type made struct{ Command, Commit string }

// addTotals adds sums to those of a file, and returns all.
func addTotals(t *testing.T, file string, sums []*summary) []*summary {
	t.Helper()
	var all totals
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	all.Faults = nil
	for _, f := range faults {
		all.Faults = append(all.Faults, f.name)
	}
	all.Runs = append(all.Runs, made{command(), commit(t)})
	for _, sum := range sums {
		i := slices.IndexFunc(all.Workloads, func(s *summary) bool { return s.Workload == sum.Workload })
		if i < 0 {
			all.Workloads = append(all.Workloads, newSummary(sum.Workload))
			i = len(all.Workloads) - 1
		}
		all.Workloads[i].merge(sum)
	}
	for _, s := range all.Workloads {
		for _, one := range workloads {
			if one.name == s.Workload {
				s.Claims = one.make().Claims()
			}
		}
	}
	writeJSON(t, file, &all)
	return all.Workloads
}

// command is the one that lives through the seeds of this run.
func command() string {
	text := fmt.Sprintf("make sim SEEDS=%d MINUTES=%v", *flagSeeds, *flagMinutes)
	if *flagFirst != 1 {
		text += fmt.Sprint(" FROM=", *flagFirst)
	}
	if *flagWorkload != "" {
		text += " WORKLOAD=" + *flagWorkload
	}
	if *flagWith != "" {
		text += " WITH=" + *flagWith
	}
	return text
}

// commit names the commit that is checked out, and whether something is not committed.
func commit(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// printSums prints what was done, reached and broken.
func printSums(out io.Writer, all []*summary) {
	for _, s := range all {
		fmt.Fprintf(out, "%s: %d seeds, %v of virtual time, %d round trips, in %v; the latest takeover came %v after a lease's end\n", s.Workload, s.Runs,
			s.Virtual.Round(time.Second), s.Trips, s.Took.Round(100*time.Millisecond), s.Late.Round(10*time.Millisecond))
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
