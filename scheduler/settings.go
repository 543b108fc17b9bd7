package scheduler

import (
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// A Setting is one of the settings of schedules: a column of the table, a flag of dbcron schedule, a key of
// schedule files and a field of the API.
type Setting = setting.Setting[Schedule]

// Settings lists the settings of schedules but for the name, the spec and the work, in the order in which they are
// read and shown.
func Settings() []Setting { return settings }

// Works are the kinds of work of which settings can be: see Setting.Only.
const (
	commands = "commands"
	jobs     = "jobs"
)

// Work returns the kind of work of a schedule: commands, requests, statements, functions or jobs.
func (s *Schedule) Work() string {
	switch s.Kind {
	case "http":
		return "requests"
	case "sql":
		return "statements"
	case "func":
		return "functions"
	case "job":
		return jobs
	}
	return commands
}

// maxDescription is the number of characters that a description has at most.
const maxDescription = 1000

// maxNumber is the greatest number in settings.
const maxNumber = 1_000_000

// workColumns are columns of a schedule that say when it runs, and what.
var workColumns = []Setting{
	setting.Of("spec", setting.Plain("spec"), func(s *Schedule) *string { return &s.Spec }, "", "When it runs."),
	setting.Of("kind", setting.OneOf(kinds...), func(s *Schedule) *string { return &s.Kind }, "shell", "What the command is."),
	setting.Of("command", setting.Plain("command"), func(s *Schedule) *string { return &s.Command }, "", "What runs."),
	setting.Of("stdin", setting.Plain("text"), func(s *Schedule) *string { return &s.Stdin }, "", "What the work reads."),
	setting.Of("env", setting.Pairs(), func(s *Schedule) *map[string]string { return &s.Env }, "", "Variables of a command."),
	setting.Of("headers", setting.Pairs(), func(s *Schedule) *map[string]string { return &s.Headers }, "", "Headers of a request."),
}

// settings is the table of settings. The time zone comes before starts and ends, which need it.
var settings = []Setting{
	setting.Of("time_zone", setting.Plain("zone"), func(s *Schedule) *string { return &s.Zone },
		"UTC", "The time zone of the spec."),
	setting.Of("dst", setting.OneOf("vixie", "wall"), func(s *Schedule) *string { return &s.DST },
		"vixie", "What happens when clocks change: vixie runs fixed times once, wall as the clock shows."),
	setting.Of("dir", setting.Plain("folder"), func(s *Schedule) *string { return &s.Dir },
		"", "The folder in which the command starts.").For(commands).Where().Else("its home, from env or its user or the daemon"),
	setting.Of("user", setting.Plain("name"), func(s *Schedule) *string { return &s.User },
		"", "The user that the command runs as, if the daemon is root.").For(commands).Where().Else("the daemon's").Column("run_as"),
	setting.Of("job_queue", setting.Plain("name"), func(s *Schedule) *string { return &s.Job.Queue },
		"", "The queue of the job, which is created if there is none.").For(jobs).Else("by the route of its kind"),
	setting.Of("job_key", setting.Plain("name"), func(s *Schedule) *string { return &s.Job.Key },
		"", "The ordering key of the job: jobs of one key are done in order.").For(jobs).Else("none"),
	setting.Of("job_priority", setting.Urgency(), func(s *Schedule) *int { return &s.Job.Priority },
		"normal", "The priority of the job in its queue.").For(jobs),
	setting.Of("job_max_attempts", setting.Number(maxNumber), func(s *Schedule) *int { return &s.Job.MaxAttempts },
		"", "The job is dead after this many failed attempts.").For(jobs).Else("the queue's"),
	setting.Of("job_timeout", setting.Span(), func(s *Schedule) *time.Duration { return &s.Job.Timeout },
		"", "An attempt at the job fails after this long.").For(jobs).Else("the queue's"),
	setting.Of("job_unique", setting.Plain("key"), func(s *Schedule) *string { return &s.Job.Unique },
		"", "The unique key of the job: while a job of the queue has it, slots are skipped.").For(jobs).Else("none"),
	setting.Of("job_unique_for", setting.Span(), func(s *Schedule) *time.Duration { return &s.Job.UniqueFor },
		"", "The job keeps its unique key at least this long.").For(jobs).Else("until it has ended"),
	setting.Of("job_unique_until", setting.OneOf("end", "begin"), func(s *Schedule) *string { return &s.Job.UniqueUntil },
		"end", "Until when the job has its unique key: until it has ended, or until its first attempt begins.").For(jobs),
	setting.Of("job_tenant", setting.Plain("tenant"), func(s *Schedule) *string { return &s.Job.Tenant },
		"", "Whose job it is, where its queue is fair.").For(jobs).Else("nobody's"),
	setting.Of("job_cost", setting.Number(queue.MaxCost), func(s *Schedule) *int { return &s.Job.Cost },
		"", "For how many jobs it counts at rates of limits, and in the turns of tenants.").For(jobs).Else("1"),
	setting.Of("description", setting.Sentence(maxDescription), func(s *Schedule) *string { return &s.Description },
		"", "What it is for, in words, which changes nothing; of a crontab, the comment above its line."),
	setting.Of("tag", setting.Plain("tag"), func(s *Schedule) *string { return &s.Tag },
		"default", "Only daemons that have this tag run it: dbcron serve --tag.").Where(),
	setting.Of("missed", setting.OneOf("skip", "once", "all"), func(s *Schedule) *string { return &s.Missed },
		"once", "Which slots run that passed while no daemon ran: none, the newest, or all."),
	setting.Of("missed_window", setting.Span(), func(s *Schedule) *time.Duration { return &s.MissedWindow },
		"", "How late a slot may still run.").Else("any time, or 1m if missed is skip"),
	setting.Of("overlap", setting.OneOf("forbid", "allow", "queue", "replace"), func(s *Schedule) *string { return &s.Overlap },
		"forbid", "What happens to a slot that comes while the run before is under way: it is skipped, runs beside it, waits for its end, or replaces it."),
	setting.Of("first_run", setting.OneOf("next", "now"), func(s *Schedule) *string { return &s.FirstRun },
		"next", "When a new schedule runs first: at its next slot, or at once."),
	setting.Of("max_attempts", setting.Number(1000), func(s *Schedule) *int { return &s.MaxAttempts },
		"1", "The number of attempts at a slot whose work fails.").NotFor(jobs),
	setting.Of("retry_delay", setting.Span(), func(s *Schedule) *time.Duration { return &s.RetryDelay },
		"10s", "The time before the second attempt; it doubles with each further one."),
	setting.Of("retry_max_delay", setting.Span(), func(s *Schedule) *time.Duration { return &s.RetryMaxDelay },
		"1h", "The longest time between two attempts."),
	setting.Of("retry_past_next", setting.Bool(), func(s *Schedule) *bool { return &s.RetryPastNext },
		"false", "Whether attempts go on although the next slot has come."),
	setting.Of("repeatable", setting.Opposite(), func(s *Schedule) *bool { return &s.Unrepeatable },
		"true", "Whether a run begins again whose daemon died or was stopped; if not, it is lost."),
	setting.Of("timeout", setting.Span("none"), func(s *Schedule) *time.Duration { return &s.Timeout },
		"none", "A run is ended after this long.").NotFor(jobs),
	setting.Of("stall", setting.SpanOf(time.Second, plain.LongestDuration, "none"), func(s *Schedule) *time.Duration { return &s.Stall },
		"none", "A command is ended that has written nothing for this long.").For(commands),
	setting.Of("kill_grace", setting.Span(), func(s *Schedule) *time.Duration { return &s.KillGrace },
		"", "The time from SIGTERM to SIGKILL.").For(commands).Else("the daemon's, 5s"),
	setting.Of("linger", setting.Span("forever"), func(s *Schedule) *time.Duration { return &s.Linger },
		"1s", "How long what a command leaves in the background may run on, and with it the run.").For(commands),
	setting.Of("jitter", setting.Span("none"), func(s *Schedule) *time.Duration { return &s.Jitter },
		"none", "Slots run up to this much later, to spread them."),
	setting.Of("starts", setting.Moment(), func(s *Schedule) *time.Time { return &s.Starts },
		"", "There are no slots before this time, such as 2026-12-01T00:00.").Column("starts_at").In(zoneOf),
	setting.Of("ends", setting.Moment(), func(s *Schedule) *time.Time { return &s.Ends },
		"", "There are no slots after this time, such as 2026-12-31T18:00.").Column("ends_at").In(zoneOf),
	setting.Of("max_failures", setting.NumberOr("none", 0, maxNumber), func(s *Schedule) *int { return &s.MaxFailures },
		"none", "The schedule is given up after this many failed slots in a row."),
	setting.Of("keep_runs", setting.NumberOr("all", -1, maxNumber), func(s *Schedule) *int { return &s.KeepRuns },
		"1000", "The number of runs that the history keeps."),
	setting.Of("keep_for", setting.Span("forever"), func(s *Schedule) *time.Duration { return &s.KeepFor },
		"30d", "How long the history keeps runs."),
	setting.Of("on_success", setting.Plain("name"), func(s *Schedule) *string { return &s.OnSuccess },
		"", "The schedule to start when a run has ended well."),
	setting.Of("on_failure", setting.Plain("name"), func(s *Schedule) *string { return &s.OnFailure },
		"", "The schedule to start when a slot has failed for good."),
	setting.Of("notify", setting.Targets(), func(s *Schedule) *string { return &s.Notify },
		"", "Who is notified when it fails and when it recovers: mail addresses and URLs with commas between, or none.").Else("the daemons' setting"),
}

// settingColumns are all columns that say what a schedule is to do; they change seldom.
var settingColumns = append(append([]Setting{}, workColumns...), settings...)

// zoneOf returns the time zone of a schedule, or nil if it has none.
func zoneOf(s *Schedule) *time.Location {
	plan, err := cronspec.New("@daily", s.Zone, "")
	if err != nil {
		return nil
	}
	return plan.Location()
}

// arguments returns the columns of settings that are filled in.
func (s *Schedule) arguments() sqlrun.Args {
	args := sqlrun.Args{}
	setting.Args(settingColumns, s, args)
	return args
}
