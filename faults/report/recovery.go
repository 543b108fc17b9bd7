package main

import (
	"errors"
	"fmt"
)

// recovered are the rows of the table, by what the test calls them.
var recovered = []struct{ how, kind, title string }{
	{"killed", "worker", "a worker is killed, until its job begins in another one"},
	{"paused", "worker", "a worker is paused, likewise"},
	{"killed", "daemon", "a daemon is killed, until its run begins in another one"},
	{"paused", "daemon", "a daemon is paused, likewise"},
	{"killed", "lock", "a lock's holder is killed, until who waits has the lock"},
	{"paused", "lock", "a lock's holder is paused, likewise"},
	{"killed", "claim", "who has claimed a job over HTTP is killed, until the job is claimed anew"},
	{"paused", "claim", "who has claimed a job over HTTP is paused, likewise"},
}

// recovery writes a table of how long work waits whose process was killed or paused: the median and the longest of some times.
func recovery(text []byte) (string, error) {
	runs, trials, err := trialsIn(text)
	if err != nil {
		return "", err
	}
	var t table
	most, least, times := 0, 1<<30, 0
	titles := []string{"median / longest, in seconds"}
	for _, e := range engines {
		titles = append(titles, e.title)
	}
	t.head(titles...)
	for _, r := range recovered {
		cells := []string{r.title}
		for _, e := range engines {
			one := trials["TestRecovery"][e.name]
			if one == nil {
				return "", errors.New("TestRecovery has not run on " + e.title)
			}
			if one.failed > 0 {
				return "", errors.New("TestRecovery has failed on " + e.title)
			}
			name := r.how + " " + r.kind
			cells = append(cells, fmt.Sprintf("%.1f / %.1f", float64(one.counts[name+" median"])/1000, float64(one.counts[name+" longest"])/1000))
			times = max(times, one.counts[name+" times"])
			most, least = max(most, one.counts[r.how+" load"]), min(least, one.counts[r.how+" load"])
		}
		t.row(cells...)
	}
	head := source(runs)
	head = head[:len(head)-len(".\n\n")] + fmt.Sprintf(", whose load was %.0f to %.0f. Each figure is of %d times.\n\n", float64(least)/100, float64(most)/100, times)
	return head + t.String(), nil
}
