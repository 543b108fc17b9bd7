package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/scheduler"
)

// A job is one kind of schedule in TestChaos, which creates it once per policy.
type job struct {
	name  string
	kind  string // default: shell
	every int    // seconds; 0: the plan decides
	work  string
	set   func(*scheduler.Schedule)
	then  bool // another schedule follows its successes or failures and leads back to it
	all   bool // the short run, too, combines it with all policies

	good   bool // no run may fail, except when its daemons were killed too often
	bad    bool // no run may be ok
	pruned bool // the history keeps only the newest runs
	paused bool // it is paused and resumed: @every counts from the resumption
}

const manual = -1

// jobs lists every kind. A command takes long only on its first attempt, so that many are cut off
// when their daemon is killed or stopped.
var jobs = []job{
	{name: "quick", work: "true", good: true, all: true},
	{name: "brief", work: "sleep 0.3", good: true},
	{name: "leaves", work: "(trap '' TERM HUP; sleep 1000) & sleep 0.1", good: true},
	{name: "escapes", work: "trap '' TERM; setsid sleep 1000 & sleep 0.2", good: true},
	{name: "long", work: "test $DBCRON_ATTEMPT -gt 1 || sleep 7.5", every: 10, good: true, all: true},
	{name: "busy", work: "sleep $((DBCRON_RUN_ID % 4 * 2))", every: 5, good: true},
	{name: "flaky", work: "test $((DBCRON_RUN_ID % 3)) -gt 0", set: retried},
	{name: "fails", work: "exit 3", bad: true, then: true, set: func(s *scheduler.Schedule) {
		retried(s)
		s.RetryPastNext, s.OnFailure = true, after(s.Name)
	}},
	{name: "absent", work: "exec /nonexistent", bad: true, set: retried},
	{name: "slow", work: "sleep 30", bad: true, set: func(s *scheduler.Schedule) {
		s.Timeout, s.MaxAttempts, s.RetryDelay = time.Second, 2, 500*time.Millisecond
	}},
	{name: "stubborn", work: "trap '' TERM; sleep 30; sleep 30", bad: true, set: func(s *scheduler.Schedule) {
		s.Timeout, s.KillGrace = time.Second, 500*time.Millisecond
	}},
	{name: "spread", work: "true", good: true, set: func(s *scheduler.Schedule) { s.Jitter = 3 * time.Second }},
	{name: "chain", work: "true", good: true, then: true, set: func(s *scheduler.Schedule) { s.OnSuccess = after(s.Name) }},
	{name: "gives-up", work: "exit 1", bad: true, set: func(s *scheduler.Schedule) { s.MaxFailures = 3 }},
	{name: "forgets", work: "true", good: true, pruned: true, set: func(s *scheduler.Schedule) { s.KeepRuns, s.MaxAttempts = 5, 2 }},
	{name: "argv", kind: "argv", work: "true", good: true},
	{name: "sql", kind: "sql", work: "INSERT INTO effect (schedule) VALUES ('NAME')", all: true, set: retried},
	{name: "sql-fails", kind: "sql", work: "INSERT INTO absent (schedule) VALUES ('NAME')", bad: true, set: retried},
	{name: "http", kind: "http", work: "POST ENDPOINT/ok", all: true, set: retried},
	{name: "http-fails", kind: "http", work: "POST ENDPOINT/flaky", set: retried},
	{name: "paused", work: "true", good: true, paused: true},
	{name: "backfilled", work: "sleep 0.3", every: 3, good: true},
	{name: "first-now", work: "true", good: true, set: func(s *scheduler.Schedule) { s.FirstRun = "now" }},
	{name: "ends", work: "true", every: 6, good: true, set: func(s *scheduler.Schedule) { s.Ends = s.Starts.Add(20 * time.Second) }},
	{name: "hand", work: "sleep 0.2", every: manual, good: true},
	{name: "cron", work: "true", good: true, set: func(s *scheduler.Schedule) { s.Spec = "* * * * *" }},
}

func retried(s *scheduler.Schedule) {
	s.MaxAttempts, s.RetryDelay = 3, 500*time.Millisecond
}

// after returns the name of the schedule that follows another one.
func after(name string) string { return name + ".after" }

// A given is one schedule of a job.
type given struct {
	scheduler.Schedule
	*job
	first   time.Time   // its first slot
	resumed []time.Time // when operators resumed it
}

// policies are the valid combinations: dbcron refuses missed all with overlap replace.
var policies = []struct {
	overlap string
	missed  []string
}{
	{"forbid", []string{"once", "all", "skip"}},
	{"allow", []string{"once", "all", "skip"}},
	{"queue", []string{"once", "all", "skip"}},
	{"replace", []string{"once", "skip"}},
}

// given makes the number of schedules that the plan asks for, and at least one of each job. It
// makes the same ones each time.
func (c *chaos) given(now time.Time) []*given {
	var all []*given
	for copies := 0; copies == 0 || len(all) < c.plan.schedules; copies++ {
		for o, p := range policies {
			for m, missed := range p.missed {
				for i := range jobs {
					j := &jobs[i]
					if copies > 0 && len(all) >= c.plan.schedules || !c.plan.cross && !j.all && m != (i+o)%len(p.missed) {
						continue
					}
					s := scheduler.Schedule{Policy: scheduler.Policy{Missed: missed, Overlap: p.overlap, Starts: now.Add(-time.Second)}}
					all = append(all, c.ofJob(j, s, copies, len(all))...)
				}
			}
		}
	}
	return all
}

// ofJob returns a schedule of a job and, where the job asks for it, the one that follows.
func (c *chaos) ofJob(j *job, s scheduler.Schedule, copies, n int) []*given {
	s.Kind, s.Tag = j.kind, []string{"default", "other"}[n%2]
	s.Name = fmt.Sprintf("%s-%s-%s-%d", j.name, s.Missed, s.Overlap, copies)
	switch {
	case j.every == manual:
		s.Spec = "@manual"
	case j.every > 0:
		s.Spec = fmt.Sprintf("@every %ds", j.every)
	default:
		s.Spec = fmt.Sprintf("@every %ds", c.plan.every[n%len(c.plan.every)])
	}
	s.Command = c.command(&s, j.work)
	if s.Kind == "" || s.Kind == "argv" {
		name, value, _ := strings.Cut(c.mark, "=")
		s.Env = map[string]string{name: value, "DIR": c.dir}
	}
	if j.set != nil {
		j.set(&s)
	}
	all := []*given{{Schedule: s, job: j}}
	if j.then {
		next := scheduler.Schedule{Name: after(s.Name), Spec: "@manual", Env: s.Env, Tag: s.Tag}
		next.Overlap, next.OnSuccess = s.Overlap, s.Name
		next.Command = c.command(&next, "true")
		all = append(all, &given{Schedule: next, job: &job{name: "after", good: true}})
	}
	return all
}

// command returns a job's work as the schedule's command. The command records its start. Where
// runs must not overlap, it holds a lock while it runs, and records an overlap if the lock is
// taken.
func (c *chaos) command(s *scheduler.Schedule, work string) string {
	switch s.Kind {
	case "sql":
		return strings.ReplaceAll(work, "NAME", s.Name)
	case "http":
		return strings.ReplaceAll(work, "ENDPOINT", c.endpoint.URL)
	}
	text := "echo $DBCRON_SCHEDULE $DBCRON_RUN_ID $DBCRON_FENCE >>$DIR/begun; " + work
	if s.Overlap != "allow" {
		text = "exec 9>$DIR/$DBCRON_SCHEDULE.lock; flock -n 9 || echo $DBCRON_SCHEDULE $DBCRON_RUN_ID >>$DIR/overlap; " + text
	}
	if s.Kind == "argv" {
		return scheduler.Argv("/bin/sh", "-c", text)
	}
	return text
}

// crontab returns more schedules, which each daemon imports when it starts.
func (c *chaos) crontab() (text string, all []*given) {
	name, value, _ := strings.Cut(c.mark, "=")
	var b strings.Builder
	fmt.Fprintf(&b, "%s=%s\nDIR=%s\n", name, value, c.dir)
	j := &job{name: "crontab", good: true}
	for i := range 5 {
		s := scheduler.Schedule{Name: fmt.Sprintf("crontab-%d", i), Spec: fmt.Sprintf("@every %ds", 5+i)}
		fmt.Fprintf(&b, "# name: %s\n%s %s\n", s.Name, s.Spec, c.command(&s, "sleep 0.2"))
		all = append(all, &given{Schedule: s, job: j})
	}
	return b.String(), all
}
