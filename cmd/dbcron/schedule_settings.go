package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
	"github.com/dbcron/dbcron/wire"
)

// A setting is a column of a schedule that has a flag. Its value is text here, so that all invalid flags are
// reported together.
type setting struct {
	name  string // of the column
	shape string // placeholder in the help
	usual string // the default
	usage string
	get   func(*schedule) string
	set   func(*schedule, string) error
}

type schedule = scheduler.Schedule

// settings are listed in the order in which they are parsed and shown: time_zone precedes starts and ends, which
// need it.
var settings = []setting{
	words("time_zone", "zone", "UTC", "time zone of the spec", func(s *schedule) *string { return &s.Zone }),
	words("dst", "vixie|wall", "vixie", "when clocks change: vixie runs fixed times once, wall as the clock shows",
		func(s *schedule) *string { return &s.DST }),
	words("dir", "folder", "", "where the command starts (default: its home, from env or its user or the daemon)",
		func(s *schedule) *string { return &s.Dir }),
	words("user", "name", "", "user that the command runs as, if the daemon is root", func(s *schedule) *string { return &s.User }),
	words("job_queue", "name", "", "queue of the job, which is made if there is none (default: by the route of its kind)",
		func(s *schedule) *string { return &s.Job.Queue }),
	words("job_key", "name", "", "what the job is about: jobs of one key are done in order", func(s *schedule) *string { return &s.Job.Key }),
	urgency("job_priority", "of the job", func(s *schedule) *int { return &s.Job.Priority }),
	count("job_max_attempts", "", "of the job, after which it is dead (default: the queue's)",
		func(s *schedule) *int { return &s.Job.MaxAttempts }),
	span("job_timeout", "", "after which an attempt at the job has failed (default: the queue's)",
		func(s *schedule) *time.Duration { return &s.Job.Timeout }),
	words("job_unique", "key", "", "while a job of the queue has this key, slots enqueue none: they are skipped",
		func(s *schedule) *string { return &s.Job.Unique }),
	span("job_unique_for", "", "how long a job keeps that key at least (default: until it has ended)",
		func(s *schedule) *time.Duration { return &s.Job.UniqueFor }),
	words("tag", "tag", "default", "only daemons that have this tag run it: dbcron serve --tag", func(s *schedule) *string { return &s.Tag }),
	words("missed", "skip|once|all", "once", "slots that passed while no daemon ran: once runs the newest",
		func(s *schedule) *string { return &s.Missed }),
	span("missed_window", "", "how late a slot may still run (default: 1m with --missed skip, else any time)",
		func(s *schedule) *time.Duration { return &s.MissedWindow }),
	words("overlap", "forbid|allow|queue|replace", "forbid", "a slot that comes while the run before is under way: forbid skips it",
		func(s *schedule) *string { return &s.Overlap }),
	words("first_run", "next|now", "next", "when a new schedule runs first", func(s *schedule) *string { return &s.FirstRun }),
	count("max_attempts", "1", "attempts at a slot whose work fails", func(s *schedule) *int { return &s.MaxAttempts }),
	span("retry_delay", "10s", "time before the second attempt; doubles with each further one",
		func(s *schedule) *time.Duration { return &s.RetryDelay }),
	span("retry_max_delay", "1h", "time between two attempts at the most", func(s *schedule) *time.Duration { return &s.RetryMaxDelay }),
	yesNo("retry_past_next", "attempts go on although the next slot has come", func(s *schedule) *bool { return &s.RetryPastNext }),
	repeatable,
	spanOr("none", 0, "timeout", "none", "time after which a run is ended", func(s *schedule) *time.Duration { return &s.Timeout }),
	spanOr("none", 0, "stall", "none", "time without output after which a command is ended",
		func(s *schedule) *time.Duration { return &s.Stall }),
	span("kill_grace", "", "time from SIGTERM to SIGKILL (default: 5s)", func(s *schedule) *time.Duration { return &s.KillGrace }),
	spanOr("none", 0, "jitter", "none", "maximum delay of slots, to spread them",
		func(s *schedule) *time.Duration { return &s.Jitter }),
	moment("starts", "there are no slots before, such as 2026-12-01T00:00", func(s *schedule) *time.Time { return &s.Starts }),
	moment("ends", "there are no slots after, such as 2026-12-31T18:00", func(s *schedule) *time.Time { return &s.Ends }),
	countOr("none", 0, "max_failures", "none", "failed slots in a row after which the schedule is given up",
		func(s *schedule) *int { return &s.MaxFailures }),
	countOr("all", -1, "keep_runs", "1000", "how many runs the history keeps", func(s *schedule) *int { return &s.KeepRuns }),
	spanOr("forever", -1, "keep_for", "30d", "how long the history keeps runs", func(s *schedule) *time.Duration { return &s.KeepFor }),
	words("on_success", "name", "", "schedule to start when a run has ended well", func(s *schedule) *string { return &s.OnSuccess }),
	words("on_failure", "name", "", "schedule to start when a slot has failed for good", func(s *schedule) *string { return &s.OnFailure }),
	words("notify", "targets", "", "who is notified when it fails and when it recovers: mail addresses and URLs with commas between, or none (default: the daemons' setting)", func(s *schedule) *string { return &s.Notify }),
}

// flag returns the name of the setting's flag.
func (s setting) flag() string {
	return strings.ReplaceAll(s.name, "_", "-")
}

// register adds the setting's flag. It has no default, so it is known what was given, and an empty text restores
// the default.
func (s setting) register(c *cobra.Command) {
	usage := s.usage
	if s.usual != "" {
		usage += fmt.Sprintf(" (default: %s)", s.usual)
	}
	if s.shape == "" {
		c.Flags().Bool(s.flag(), false, usage)
		return
	}
	c.Flags().Var(&rawText{shape: s.shape}, s.flag(), usage)
}

// A rawText is a flag whose text is parsed later.
type rawText struct{ text, shape string }

func (t *rawText) String() string        { return t.text }
func (t *rawText) Set(text string) error { t.text = text; return nil }
func (t *rawText) Type() string          { return t.shape }

// ordinary reports whether a schedule has the setting's default.
func (s setting) ordinary(of *schedule) bool {
	text := s.get(of)
	return text == "" || text == s.usual
}

func words(name, shape, usual, usage string, field func(*schedule) *string) setting {
	return setting{
		name, shape, usual, usage,
		func(s *schedule) string { return *field(s) },
		func(s *schedule, text string) error { *field(s) = text; return nil },
	}
}

// span is a setting that is a duration. It refuses 0, which would mean the default, to nobody's expectation.
func span(name, usual, usage string, field func(*schedule) *time.Duration) setting {
	return spanOr("", 0, name, usual, usage, field)
}

// spanOr is a setting that is a duration or a word.
func spanOr(word string, means time.Duration, name, usual, usage string, field func(*schedule) *time.Duration) setting {
	return setting{
		name, "duration" + orShape(word), usual, usage,
		func(s *schedule) string {
			if d := *field(s); d < 0 {
				return word
			}
			return plain.FormatDuration(*field(s))
		},
		func(s *schedule, text string) error {
			if text != "" && text == word {
				*field(s) = means
				return nil
			}
			d, err := plain.ParseDuration(text)
			if err == nil && d == 0 && text != "" && (word == "" || means != 0) {
				err = errors.New("is 0; use at least 1ms")
			}
			*field(s) = d
			return err
		},
	}
}

func count(name, usual, usage string, field func(*schedule) *int) setting {
	return countOr("", 0, name, usual, usage, field)
}

// countOr is a setting that is a number or a word.
func countOr(word string, means int, name, usual, usage string, field func(*schedule) *int) setting {
	return setting{
		name, "number" + orShape(word), usual, usage,
		func(s *schedule) string {
			switch n := *field(s); {
			case n < 0:
				return word
			case n == 0:
				return ""
			default:
				return strconv.Itoa(n)
			}
		},
		func(s *schedule, text string) (err error) {
			n := 0
			switch text {
			case "":
			case word:
				n = means
			default:
				n, err = strconv.Atoi(text)
				if err != nil || n < 0 || n == 0 && (word == "" || means != 0) {
					err = fmt.Errorf("%q is not a number from 1 on%s", text, strings.Replace(orShape(word), "|", ", or ", 1))
				}
			}
			*field(s) = n
			return err
		},
	}
}

func orShape(word string) string {
	if word == "" {
		return ""
	}
	return "|" + word
}

// urgency is a setting that is a job's priority, in words.
func urgency(name, usage string, field func(*schedule) *int) setting {
	return setting{
		name, "urgent|normal|low|idle", "normal", usage,
		func(s *schedule) string { return wire.PriorityName(*field(s)) },
		func(s *schedule, text string) (err error) {
			*field(s) = 0
			if text != "" {
				*field(s), err = wire.ParsePriority(text)
			}
			return err
		},
	}
}

func yesNo(name, usage string, field func(*schedule) *bool) setting {
	return setting{
		name, "", "", usage,
		func(s *schedule) string {
			if *field(s) {
				return "true"
			}
			return ""
		},
		func(s *schedule, text string) error { *field(s) = text == "true"; return nil },
	}
}

// repeatable is stored as its opposite, so that the zero value is the default.
var repeatable = setting{
	"repeatable", "true|false", "true", "false: a run whose daemon dies or is stopped is lost, and not begun again",
	func(s *schedule) string {
		if s.Unrepeatable {
			return "false"
		}
		return ""
	},
	func(s *schedule, text string) error {
		switch text {
		case "true", "":
			s.Unrepeatable = false
		case "false":
			s.Unrepeatable = true
		default:
			return fmt.Errorf("%q is not true or false", text)
		}
		return nil
	},
}

func moment(name, usage string, field func(*schedule) *time.Time) setting {
	return setting{
		name, "time", "", usage,
		func(s *schedule) string {
			if field(s).IsZero() {
				return ""
			}
			return field(s).UTC().Format(time.RFC3339Nano)
		},
		func(s *schedule, text string) error {
			*field(s) = time.Time{}
			if text == "" {
				return nil
			}
			plan, err := cronspec.New("@daily", s.Zone, "")
			if err != nil {
				return nil //nolint:nilerr // it is told of the zone
			}
			at, day, err := parseTime(text, plan.Location())
			if err == nil && day {
				err = fmt.Errorf("%q has no time of day; write for example %sT00:00", text, text)
			}
			*field(s) = at
			return err
		},
	}
}

// parseTime parses RFC 3339, or a date with or without a time of day in a zone. day reports that there was no time
// of day.
func parseTime(text string, zone *time.Location) (at time.Time, day bool, err error) {
	if at, err = time.Parse(time.RFC3339, text); err == nil {
		return at.Truncate(time.Millisecond).UTC(), false, nil // SQLite's precision
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateTime, time.DateOnly} {
		if wall, err := time.Parse(layout, text); err == nil {
			at, err = onClocks(wall, zone)
			if layout == time.DateOnly && err != nil {
				at, err = time.ParseInLocation(layout, text, zone) // some days begin at 01:00, and some twice
			}
			return at, layout == time.DateOnly, err
		}
	}
	return at, false, fmt.Errorf("%q is not a time such as 2026-11-20T18:00 or 2026-11-20T18:00:00Z", text)
}

// onClocks returns when the clocks of a zone show a wall time. Some are shown twice and some never, and package
// time picks an instant silently.
func onClocks(wall time.Time, zone *time.Location) (at time.Time, err error) {
	found := map[int64]bool{}
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(near).In(zone).Zone()
		try := wall.Add(-time.Duration(offset) * time.Second)
		if _, shows := try.In(zone).Zone(); shows == offset {
			at = try
			found[try.Unix()] = true
		}
	}
	if len(found) == 1 {
		return at, nil
	}
	often := map[int]string{0: "never", 2: "twice"}[len(found)]
	return at, fmt.Errorf("the clocks of %s show %s %s; write it with its offset, such as %s+01:00",
		zone, wall.Format(time.DateTime), often, wall.Format("2006-01-02T15:04:05"))
}
