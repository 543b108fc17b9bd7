package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
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
	Sum           uint64 // of all events
}

// A summary adds up the lives of a workload.
type summary struct {
	Workload              string
	Runs, Trips           int
	Virtual, Took         time.Duration
	Done, Reached, Broken map[string]int
	Seeds                 map[string]int // that reached a situation
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

// addTotals adds sums to those of a file, and returns all.
func addTotals(t *testing.T, file string, sums []*summary) (all []*summary) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, sum := range sums {
		i := slices.IndexFunc(all, func(s *summary) bool { return s.Workload == sum.Workload })
		if i < 0 {
			all = append(all, newSummary(sum.Workload))
			i = len(all) - 1
		}
		all[i].merge(sum)
	}
	writeJSON(t, file, all)
	return all
}

// printSums prints what was done, reached and broken.
func printSums(out io.Writer, all []*summary) {
	for _, s := range all {
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

// printTable prints faults × workloads, for docs/reliability.md.
func printTable(out io.Writer, all []*summary) {
	row := func(name string, cell func(s *summary) string) {
		fmt.Fprintf(out, "| %s |", name)
		for _, s := range all {
			fmt.Fprintf(out, " %s |", cell(s))
		}
		fmt.Fprintln(out)
	}
	row("", func(s *summary) string { return s.Workload })
	row("---", func(*summary) string { return "---" })
	row("seeds", func(s *summary) string { return thousands(s.Runs) })
	row("virtual hours", func(s *summary) string { return fmt.Sprintf("%.1f", s.Virtual.Hours()) })
	row("round trips", func(s *summary) string { return thousands(s.Trips) })
	row("done", func(s *summary) string {
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(s.Done)) {
			parts = append(parts, thousands(s.Done[kind])+" "+kind)
		}
		return strings.Join(parts, ", ")
	})
	for _, f := range faults {
		row(f.name, func(s *summary) string {
			return fmt.Sprintf("%s in %s seeds", thousands(s.Reached[f.name]), thousands(s.Seeds[f.name]))
		})
	}
	row("situations reached", func(s *summary) string {
		claims, reached := 0, 0
		for _, one := range workloads {
			if one.name == s.Workload {
				for _, claim := range one.make().Claims() {
					claims++
					if s.Reached[claim] > 0 {
						reached++
					}
				}
			}
		}
		return fmt.Sprintf("%d of %d", reached, claims)
	})
	row("violations", func(s *summary) string {
		if len(s.Broken) == 0 {
			return "0"
		}
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(s.Broken)) {
			parts = append(parts, fmt.Sprint(s.Broken[kind], " ", kind))
		}
		return strings.Join(parts, ", ")
	})
}

// thousands writes a number with commas.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
