package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// engines are the columns, by the name of a subtest.
var engines = []struct{ name, title string }{
	{"postgres", "PostgreSQL"}, {"mariadb", "MariaDB"}, {"mysql", "MySQL"}, {"sqlite", "SQLite"},
}

// situations say what the tests do to what, in the order of the table.
var situations = []struct{ test, workload, what string }{
	{"TestChaos", "schedules", "daemons are killed, and stopped for two leases; the server is killed; operators run, cancel, pause and backfill"},
	{"TestStallUnderFullLoad", "schedules", "a daemon that is fully loaded is shut out for three seconds"},
	{"TestReplaceAtItsInterval", "schedules", "a daemon is stopped while its runs are replaced"},
	{"TestWorkThatStopsItsDaemon", "schedules", "a command stops its daemon each time"},
	{"TestStoppedForLongerThanTheLease", "all kinds of work", "processes are stopped together for longer than their leases"},
	{"TestQueueChaos", "queues", "workers are killed and stopped, and the server is killed"},
	{"TestEffects", "effects in order, per key", "producers and workers are killed and stopped, the network stalls, the clock is set, the server is killed"},
	{"TestQueueFlaps", "queues", "connections are cut for longer than the leases"},
	{"TestQueueFIFO", "FIFO queues", "workers are killed"},
	{"TestQueuePoison", "queues", "a job kills its process each time"},
	{"TestQueueLongJob", "queues", "the worker of a long job is killed"},
	{"TestQueueStopped", "queues", "a worker is stopped for longer than its lease"},
	{"TestQueueHeadsAfterDeaths", "queues", "workers of batches are killed, one every three seconds"},
	{"TestDeathBesideAStranger", "queues", "a worker is killed while a session at the prompt holds a transaction open"},
	{"TestWorkThatStopsItsWorker", "queues", "a job's command stops its worker each time"},
	{"TestLateCommits", "queues", "a transaction commits after later jobs have begun"},
	{"TestGroupsOfTheKilled", "groups", "workers are killed"},
	{"TestLimitOfTheKilled", "limits", "workers are killed"},
	{"TestRateOfProcesses", "rates", "processes share a rate"},
	{"TestPushOfTheKilled", "push", "a daemon is killed with requests under way"},
	{"TestPushStandby", "push", "the daemon that pushes is killed"},
	{"TestPushDatabaseRestart", "push", "the server is killed"},
	{"TestPushBadEndpoint", "push", "endpoints hang, drip, and answer a gigabyte"},
	{"TestPullKilled", "claims over HTTP", "a daemon is killed that has given jobs out"},
	{"TestPullStopped", "claims over HTTP", "a daemon is told to stop that has given jobs out"},
	{"TestLockCounter", "locks", "sixteen processes contend"},
	{"TestLockHolderKilled", "locks", "the holder is killed"},
	{"TestLockHolderStopped", "locks", "the holder is stopped for longer than its lease, at the worst moments"},
	{"TestLockLeaderKilledAndStopped", "elections", "the leader is killed, and stopped"},
	{"TestLockLeaderIsCutOffOnOneSide", "elections", "the server sees the leader's connections end, and the leader does not"},
	{"TestLockNetworkFrozen", "locks", "the holder's network freezes, both ways and one way"},
	{"TestLockAnswersLost", "locks", "each request and each answer of a lock's life is lost in turn"},
	{"TestLockServerRestarted", "locks", "the server is killed and shut down"},
	{"TestLockRollingUpgrade", "locks", "holders with leases of different lengths are killed"},
}

// A trial is what a test has shown on an engine.
type trial struct {
	passed, failed int            // subtests without subtests of their own
	counts         map[string]int // attributes
}

// servers writes a table of tests and engines, from what go test -json has printed.
func servers(text []byte) (string, error) {
	runs, trials, err := trialsIn(text)
	if err != nil {
		return "", err
	}
	return serversTable(runs, trials), nil
}

// trialsIn reads what go test -json has printed: the trials by test and engine.
func trialsIn(text []byte) (runs []Made, trials map[string]map[string]*trial, err error) {
	trials = map[string]map[string]*trial{}
	parents := map[string]bool{}
	type result struct{ test, action string }
	var results []result
	for line := range bytes.Lines(text) {
		var e struct{ Action, Test, Key, Value, Command, Commit string }
		if json.Unmarshal(line, &e) != nil {
			continue // what other programs print
		}
		if e.Command != "" {
			runs = append(runs, Made{e.Command, e.Commit})
		}
		test, engine := place(e.Test)
		if engine == "" {
			continue
		}
		if trials[test] == nil {
			trials[test] = map[string]*trial{}
		}
		one := trials[test][engine]
		if one == nil {
			one = &trial{counts: map[string]int{}}
			trials[test][engine] = one
		}
		switch e.Action {
		case "run":
			if at := strings.LastIndex(e.Test, "/"); at > 0 {
				parents[e.Test[:at]] = true
			}
		case "attr":
			n, err := strconv.Atoi(e.Value)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %s is %q", e.Test, e.Key, e.Value)
			}
			one.counts[strings.ReplaceAll(e.Key, "_", " ")] += n
		case "pass", "fail":
			results = append(results, result{e.Test, e.Action})
		}
	}
	if len(results) == 0 {
		return nil, nil, fmt.Errorf("no test has passed or failed on an engine")
	}
	for _, r := range results {
		if parents[r.test] {
			continue
		}
		test, engine := place(r.test)
		if r.action == "pass" {
			trials[test][engine].passed++
		} else {
			trials[test][engine].failed++
		}
	}
	return runs, trials, nil
}

// place returns the test and the engine of a subtest.
func place(name string) (test, engine string) {
	parts := strings.Split(name, "/")
	for _, part := range parts[1:] {
		for _, e := range engines {
			if part == e.name {
				return parts[0], e.name
			}
		}
	}
	return parts[0], ""
}

func serversTable(runs []Made, trials map[string]map[string]*trial) string {
	var t table
	t.WriteString(source(runs))
	titles := []string{"what happens", "to"}
	for _, e := range engines {
		titles = append(titles, e.title)
	}
	t.head(titles...)
	all, failed := map[string]int{}, 0
	for _, s := range situations {
		cells, ran := []string{s.what, s.workload}, false
		for _, e := range engines {
			one := trials[s.test][e.name]
			if one == nil || one.passed+one.failed == 0 {
				cells = append(cells, "–")
				continue
			}
			ran = true
			cells = append(cells, one.String())
			failed += one.failed
			for what, n := range one.counts {
				all[what] += n
			}
		}
		if ran {
			t.row(cells...)
		}
	}
	sums["servers"] = fmt.Sprintf("%s kills and %s stops of real processes, %s kills of database servers: %d violations",
		thousands(all["kills"]), thousands(all["stops"]), thousands(all["kills of the server"]), failed)
	return t.String()
}

// String is a cell: what was done, and how many violations that has shown.
func (t *trial) String() string {
	var all []string
	for what, n := range t.counts {
		all = append(all, thousands(n)+" "+what)
	}
	slices.SortFunc(all, func(a, b string) int {
		_, a, _ = strings.Cut(a, " ")
		_, b, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	if len(all) == 0 {
		all = []string{fmt.Sprintf("%d %s", t.passed+t.failed, cmp.Or(map[bool]string{true: "trial"}[t.passed+t.failed == 1], "trials"))}
	}
	wrong := "0 violations"
	if t.failed > 0 {
		wrong = fmt.Sprintf("**%d of %d trials found violations**", t.failed, t.passed+t.failed)
	}
	return strings.Join(all, ", ") + "; " + wrong
}
