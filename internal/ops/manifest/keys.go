package manifest

import (
	"maps"
	"strconv"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

type schedule = scheduler.Schedule

// A key of a schedule, except those that say what to run: see work.go.
type key struct {
	name string
	use  use

	// read applies an entry of the file, or reports what is wrong with it.
	read func(*item, entry) bool

	// write returns the value for the file, or "" to omit the key.
	write func(*schedule) string
}

type use int

const (
	general  use = iota
	own          // cannot be a default
	commands     // a default applies to commands only
	efforts      // a default does not apply to jobs, which their queue retries
	follow       // a default does not apply to the schedule that it names
)

// keys are in the order in which they are read and written: time_zone precedes starts and ends,
// which need it.
var keys = []key{
	text.key("name", own, func(s *schedule) *string { return &s.Name }),
	spec.key("spec", general, func(s *schedule) *string { return &s.Spec }),
	text.key("time_zone", general, func(s *schedule) *string { return &s.Zone }),
	text.key("dst", general, func(s *schedule) *string { return &s.DST }),
	variables.key("env", commands, func(s *schedule) *map[string]string { return &s.Env }),
	text.key("dir", commands, func(s *schedule) *string { return &s.Dir }),
	text.key("user", commands, func(s *schedule) *string { return &s.User }),
	text.key("tag", general, func(s *schedule) *string { return &s.Tag }),
	text.key("missed", general, func(s *schedule) *string { return &s.Missed }),
	someDuration.key("missed_window", general, func(s *schedule) *time.Duration { return &s.MissedWindow }),
	text.key("overlap", general, func(s *schedule) *string { return &s.Overlap }),
	text.key("first_run", general, func(s *schedule) *string { return &s.FirstRun }),
	number.key("max_attempts", efforts, func(s *schedule) *int { return &s.MaxAttempts }),
	someDuration.key("retry_delay", general, func(s *schedule) *time.Duration { return &s.RetryDelay }),
	someDuration.key("retry_max_delay", general, func(s *schedule) *time.Duration { return &s.RetryMaxDelay }),
	flag.key("retry_past_next", general, func(s *schedule) *bool { return &s.RetryPastNext }),
	repeats.key("repeatable", general, func(s *schedule) *bool { return &s.Unrepeatable }),
	durationOrNone.key("timeout", efforts, func(s *schedule) *time.Duration { return &s.Timeout }),
	durationOrNone.key("stall", commands, func(s *schedule) *time.Duration { return &s.Stall }),
	someDuration.key("kill_grace", commands, func(s *schedule) *time.Duration { return &s.KillGrace }),
	durationOrNone.key("jitter", general, func(s *schedule) *time.Duration { return &s.Jitter }),
	instant.key("starts", general, func(s *schedule) *time.Time { return &s.Starts }),
	instant.key("ends", general, func(s *schedule) *time.Time { return &s.Ends }),
	numberOrNone.key("max_failures", general, func(s *schedule) *int { return &s.MaxFailures }),
	numberOrAll.key("keep_runs", general, func(s *schedule) *int { return &s.KeepRuns }),
	durationOrForever.key("keep_for", general, func(s *schedule) *time.Duration { return &s.KeepFor }),
	text.key("on_success", follow, func(s *schedule) *string { return &s.OnSuccess }),
	text.key("on_failure", follow, func(s *schedule) *string { return &s.OnFailure }),
	text.key("notify", general, func(s *schedule) *string { return &s.Notify }),
	pause.key("paused", general, func(s *schedule) *string { return &s.State }),
}

var (
	workKeys  = []string{"shell", "argv", "http", "sql", "func", "job"}
	inputKeys = []string{"stdin", "input"}
	httpKeys  = []string{"method", "url", "headers", "body"}
	jobKeys   = []string{"kind", "queue", "payload", "key", "priority", "max_attempts", "timeout", "unique", "unique_for"}

	// Keys allowed in a schedule and in defaults.
	scheduleKeys, defaultKeys = keyNames()
)

func keyNames() (ofSchedule, ofDefaults []string) {
	for _, k := range keys {
		ofSchedule = append(ofSchedule, k.name)
		if k.name == "spec" {
			ofSchedule = append(append(ofSchedule, workKeys...), inputKeys...)
		}
		if k.use != own {
			ofDefaults = append(ofDefaults, k.name)
		}
	}
	return ofSchedule, ofDefaults
}

// A kind of value defines how it is read and written.
type kind[T any] struct {
	read  func(*item, entry) (T, bool)
	write func(T) string
}

func (kind kind[T]) key(name string, use use, field func(*schedule) *T) key {
	return key{
		name, use,
		func(it *item, e entry) bool {
			got, ok := kind.read(it, e)
			*field(&it.schedule) = got
			return ok
		},
		func(s *schedule) string { return kind.write(*field(s)) },
	}
}

// Words for numbers that mean no limit.
const (
	none    = "none"
	forever = "forever"
	all     = "all"
)

var (
	text = kind[string]{(*item).readText, writeText}

	// Always quoted, so that copies with other specs stay valid YAML.
	spec = kind[string]{(*item).readText, strconv.Quote}

	flag = kind[bool]{(*item).readFlag, writeFlag}

	// The field has the opposite meaning.
	repeats = kind[bool]{
		func(it *item, e entry) (bool, bool) {
			is, ok := it.readFlag(e)
			return ok && !is, ok
		},
		func(unrepeatable bool) string {
			if unrepeatable {
				return "false"
			}
			return ""
		},
	}

	pause = kind[string]{
		func(it *item, e entry) (string, bool) {
			is, ok := it.readFlag(e)
			if is {
				return "paused", ok
			}
			return "active", ok // so that a default of paused can be overridden
		},
		func(state string) string { return writeFlag(state == "paused") },
	}

	// It refuses 0, which would mean the default: no reader would expect that.
	someDuration   = kind[time.Duration]{(*item).readSomeDuration, plain.FormatDuration}
	durationOrNone = kind[time.Duration]{
		func(it *item, e entry) (time.Duration, bool) {
			if e.value.is(none) {
				return 0, true
			}
			return it.readDuration(e)
		},
		plain.FormatDuration,
	}

	durationOrForever = kind[time.Duration]{
		func(it *item, e entry) (time.Duration, bool) {
			if e.value.is(forever) {
				return -1, true
			}
			return it.readSomeDuration(e)
		},
		func(d time.Duration) string {
			if d < 0 {
				return forever
			}
			return plain.FormatDuration(d)
		},
	}

	number       = kind[int]{(*item).readSomeNumber, writeNumber}
	numberOrNone = kind[int]{
		func(it *item, e entry) (int, bool) {
			if e.value.is(none) {
				return 0, true
			}
			return it.readSomeNumber(e)
		},
		writeNumber,
	}

	numberOrAll = kind[int]{
		func(it *item, e entry) (int, bool) {
			if e.value.is(all) {
				return -1, true
			}
			n, ok := it.readSomeNumber(e)
			if ok && n < 0 {
				it.fail(e.line, "%s: %d is negative; write %s if you mean that", e.key, n, all)
			}
			return n, ok && n >= 0
		},
		func(n int) string {
			if n < 0 {
				return all
			}
			return writeNumber(n)
		},
	}

	instant = kind[time.Time]{
		(*item).readInstant,
		func(at time.Time) string {
			if at.IsZero() {
				return ""
			}
			return at.UTC().Format(time.RFC3339Nano)
		},
	}

	// Variables are merged with those of the defaults.
	variables = kind[map[string]string]{
		func(it *item, e entry) (map[string]string, bool) {
			more, ok := it.readTexts(e)
			both := maps.Clone(it.Env)
			if both == nil {
				return more, ok
			}
			maps.Copy(both, more)
			return both, ok
		},
		writeTexts,
	}
)
