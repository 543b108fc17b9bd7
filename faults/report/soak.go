package main

import "fmt"

// soak writes a table of what a process and its tables took, before and after, for each engine.
func soak(text []byte) (string, error) {
	runs, trials, err := trialsIn(text)
	if err != nil {
		return "", err
	}
	var t table
	t.WriteString(source(runs))
	t.head("", "jobs", "heap, MiB", "goroutines", "rows of all tables", "median latency, ms", "99 of 100, ms")
	for _, e := range engines {
		one := trials["TestSoak"][e.name]
		if one == nil {
			continue
		}
		cell := func(name string, scale float64) string {
			return fmt.Sprintf("%.3g → %.3g", float64(one.counts[name+" before"])/scale, float64(one.counts[name+" after"])/scale)
		}
		whole := func(name string) string {
			return thousands(one.counts[name+" before"]) + " → " + thousands(one.counts[name+" after"])
		}
		t.row(e.title, thousands(one.counts["jobs"]), cell("memory", 1<<20), whole("goroutines"), whole("rows"),
			cell("p50 µs", 1000), cell("p99 µs", 1000))
	}
	t.WriteString("\n![Memory, goroutines, rows and latency over the time](pictures/soak.svg)\n")
	return t.String(), nil
}
