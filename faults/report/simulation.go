package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A life's sums, as package simulation writes them.
type workload struct {
	Workload                     string
	Runs, Trips                  int
	Virtual, Late                time.Duration
	Done, Reached, Broken, Seeds map[string]int
	Claims                       []string
}

// simulation writes a table of faults and workloads.
func simulation(text []byte) (string, error) {
	var all struct {
		Runs      []Made
		Faults    []string
		Workloads []workload
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return "", err
	}
	if len(all.Workloads) == 0 {
		return "", fmt.Errorf("there are no workloads")
	}
	var t table
	t.WriteString(source(all.Runs))
	t.head("workload", "seeds", "virtual hours", "round trips", "done", "situations reached", "latest takeover", "violations")
	seeds, strikes, wrong, virtual := 0, 0, 0, time.Duration(0)
	for i := range all.Workloads {
		w := &all.Workloads[i]
		t.row(w.Workload, thousands(w.Runs), fmt.Sprintf("%.1f", w.Virtual.Hours()), thousands(w.Trips), counted(w.Done),
			fmt.Sprintf("%d of %d", w.reached(), len(w.Claims)), fmt.Sprintf("%.1f s", w.Late.Seconds()), violations(w.Broken))
		seeds += w.Runs
		virtual += w.Virtual
		for _, n := range w.Broken {
			wrong += n
		}
	}
	t.WriteString("\n")
	names := []string{"fault"}
	for i := range all.Workloads {
		names = append(names, all.Workloads[i].Workload)
	}
	t.head(names...)
	for _, f := range all.Faults {
		cells, sum := []string{f}, 0
		for i := range all.Workloads {
			n := all.Workloads[i].Reached[f]
			cells = append(cells, thousands(n))
			sum += n
		}
		if strikes += sum; sum > 0 {
			t.row(cells...)
		}
	}
	sums["simulation"] = fmt.Sprintf("%s lives in %.1f hours of virtual time with %s faults: %s violations",
		thousands(seeds), virtual.Hours(), thousands(strikes), thousands(wrong))
	return t.String(), nil
}

// reached returns how many of the situations that the workload claims to reach were reached.
func (w *workload) reached() (n int) {
	for _, claim := range w.Claims {
		if w.Reached[claim] > 0 {
			n++
		}
	}
	return n
}

// counted writes what was done, by kind.
func counted(done map[string]int) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(done)) {
		all = append(all, thousands(done[kind])+" "+kind)
	}
	return strings.Join(all, ", ")
}

// violations writes how many promises were broken, by kind.
func violations(broken map[string]int) string {
	if len(broken) == 0 {
		return "0"
	}
	return counted(broken)
}

// mutants writes after how many seeds each mutant was found.
func mutants(text []byte) (string, error) {
	var all struct {
		Runs    []Made
		Mutants []struct {
			Name, Workload, Kind string
			Seed, Within         int
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return "", err
	}
	var t table
	t.WriteString(source(all.Runs))
	t.head("what is taken out of the product, or put in", "workload", "found as", "by seed")
	found, byTests := 0, 0
	for _, m := range all.Mutants {
		seed := fmt.Sprintf("not by %d", m.Within)
		switch {
		case m.Seed > 0 && m.Within > 0:
			seed = fmt.Sprint(m.Seed)
			found++
		case m.Seed > 0:
			m.Workload, m.Kind, seed = "–", "`"+m.Kind+"`", "a test"
			byTests++
		case m.Within == 0:
			m.Workload, m.Kind, seed = "–", "`"+m.Kind+"`", "not by the test"
		}
		t.row(m.Name, m.Workload, m.Kind, seed)
	}
	sums["mutants"] = fmt.Sprintf("%d by the simulation and %d by other tests, of %d", found, byTests, len(all.Mutants))
	return t.String(), nil
}
