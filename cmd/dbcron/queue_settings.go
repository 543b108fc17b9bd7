package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// A queueSetting is a column of a queue that has a flag. Its value is text here, so that all invalid flags are
// reported together, before a database is opened.
type queueSetting struct {
	name  string // of the column
	shape string // placeholder in the help
	usual string // the default
	usage string
	get   func(*admin.Queue) string
	set   func(*admin.Queue, string) error
}

// queueSettings are listed in the order in which they are shown.
var queueSettings = []queueSetting{
	queueNumber("max_attempts", "10", "failed attempts after which a job is dead", func(q *admin.Queue) *int { return &q.MaxAttempts }),
	queueSpan("retry_delay", "none", 0, "10s", "time before the second attempt; doubles with each further one",
		func(q *admin.Queue) *time.Duration { return &q.RetryDelay }),
	queueSpan("retry_max_delay", "none", 0, "1h", "time between two attempts at the most",
		func(q *admin.Queue) *time.Duration { return &q.RetryMaxDelay }),
	queueKeyRetry(),
	queueFIFO(),
	queueSpan("timeout", "none", 0, "none", "time after which an attempt has failed",
		func(q *admin.Queue) *time.Duration { return &q.Timeout }),
	queueNumber("max_crashes", "3", "worker crashes after which a job is dead", func(q *admin.Queue) *int { return &q.MaxCrashes }),
	queueSpan("keep_dead", "forever", 0, "90d", "how long dead jobs are kept", func(q *admin.Queue) *time.Duration { return &q.KeepDead }),
	queueKeepDeadMax(),
	queueSpan("keep_done", "none", 0, "none", "how long jobs that are done are kept",
		func(q *admin.Queue) *time.Duration { return &q.KeepDone }),
	queueSize("max_payload", "1MiB", "how large a job's payload may be", func(q *admin.Queue) *int { return &q.MaxPayload }),
	queueSpan("poll_min", "", time.Millisecond, "2ms",
		"shortest time between two polls, after jobs were found, where workers are not notified",
		func(q *admin.Queue) *time.Duration { return &q.PollMin }),
	queueSpan("poll_max", "", time.Millisecond, "250ms", "longest time between two polls",
		func(q *admin.Queue) *time.Duration { return &q.PollMax }),
	queueNotify(),
}

func (s queueSetting) flag() string { return strings.ReplaceAll(s.name, "_", "-") }

// register adds the setting's flag. It has no default, so it is known what was given, and an empty text restores
// the default.
func (s queueSetting) register(c *cobra.Command) {
	usage := s.usage
	if s.usual != "" {
		usage += " (default: " + s.usual + ")"
	}
	c.Flags().Var(&rawText{shape: s.shape}, s.flag(), usage)
	if s.shape == "true|false" {
		c.Flags().Lookup(s.flag()).NoOptDefVal = "true"
	}
}

// put sets a queue's column from a flag's text.
func (s queueSetting) put(q *admin.Queue, text string) error {
	if text == "" {
		text = s.usual
	}
	return s.set(q, text)
}

// usualQueue returns a queue with default settings.
func usualQueue(name string) (q admin.Queue) {
	q.Name, q.State = name, "active"
	for _, s := range queueSettings {
		_ = s.set(&q, s.usual) // a test checks that the defaults are valid
	}
	return q
}

func queueKeyRetry() queueSetting {
	return queueSetting{
		"key_retry", "hold|pass", "hold", "the jobs of a key of which one waits for its next attempt: hold lets them wait, too",
		func(q *admin.Queue) string { return q.KeyRetry },
		func(q *admin.Queue, text string) error {
			if text != "hold" && text != "pass" {
				return fmt.Errorf("%q is not known; use hold or pass", text)
			}
			q.KeyRetry = text
			return nil
		},
	}
}

func queueFIFO() queueSetting {
	return queueSetting{
		"fifo", "true|false", "false", "whether its jobs are done one after the other, in the order in which they were enqueued",
		func(q *admin.Queue) string {
			return strconv.FormatBool(q.FIFO)
		},
		func(q *admin.Queue, text string) error {
			if text != "true" && text != "false" {
				return fmt.Errorf("%q is not known; use true or false", text)
			}
			q.FIFO = text == "true"
			return nil
		},
	}
}

func queueNotify() queueSetting {
	return queueSetting{
		"notify", "targets", "",
		"who is notified when it has dead letters or is behind, and when it recovers: mail addresses and URLs with commas between, or none (default: the daemons' setting)",
		func(q *admin.Queue) string { return q.Notify },
		func(q *admin.Queue, text string) error {
			_, err := scheduler.Targets(text)
			q.Notify = text
			return err
		},
	}
}

func queueKeepDeadMax() queueSetting {
	const all = "all"
	number := queueNumber("keep_dead_max", all, "how many dead jobs are kept, about: those that were enqueued last",
		func(q *admin.Queue) *int { return &q.KeepDeadMax })
	count := number
	count.shape += orShape(all)
	count.get = func(q *admin.Queue) string {
		if q.KeepDeadMax == 0 {
			return all
		}
		return number.get(q)
	}
	count.set = func(q *admin.Queue, text string) error {
		if text == all {
			q.KeepDeadMax = 0
			return nil
		}
		return number.set(q, text)
	}
	return count
}

func queueNumber(name, usual, usage string, field func(*admin.Queue) *int) queueSetting {
	return queueSetting{
		name, "number", usual, usage,
		func(q *admin.Queue) string { return strconv.Itoa(*field(q)) },
		func(q *admin.Queue, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > 1_000_000 {
				return fmt.Errorf("%q is not a number from 1 to 1000000", text)
			}
			*field(q) = n
			return nil
		},
	}
}

// queueSpan is a setting that is a duration of at least least, which may be forever.
func queueSpan(name, word string, least time.Duration, usual, usage string, field func(*admin.Queue) *time.Duration) queueSetting {
	read := wire.Duration.Finite
	if word == string(wire.Forever) {
		read = wire.Duration.Time
	}
	return queueSetting{
		name, "duration" + orShape(word), usual, usage,
		func(q *admin.Queue) string { return string(wire.DurationOf(*field(q))) },
		func(q *admin.Queue, text string) error {
			if text == "" {
				return errors.New("is empty")
			}
			d, err := read(wire.Duration(text))
			switch {
			case err != nil:
				return err
			case d >= 0 && d < least:
				return fmt.Errorf("%q is less than %v", text, least)
			}
			*field(q) = d
			return nil
		},
	}
}

// notNegative parses a duration, and explains an error about its sign.
func notNegative(text string) (time.Duration, error) {
	if text == "" {
		return 0, errors.New("is empty")
	}
	return wire.Duration(text).Finite()
}

// Units of sizes, largest first.
var sizeUnits = []struct {
	name string
	is   int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

func queueSize(name, usual, usage string, field func(*admin.Queue) *int) queueSetting {
	return queueSetting{
		name, "size", usual, usage,
		func(q *admin.Queue) string { return sizeText(*field(q)) },
		func(q *admin.Queue, text string) error {
			n, err := readSize(text)
			if err == nil {
				*field(q) = n
			}
			return err
		},
	}
}

func sizeText(n int) string {
	for _, unit := range sizeUnits {
		if n >= unit.is && n%unit.is == 0 {
			return strconv.Itoa(n/unit.is) + unit.name
		}
	}
	return strconv.Itoa(n)
}

func readSize(text string) (int, error) {
	const most = 1 << 30
	count, times := text, 1
	for _, unit := range sizeUnits {
		if before, found := strings.CutSuffix(text, unit.name); found {
			count, times = before, unit.is
		}
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > most/times {
		return 0, fmt.Errorf("%q is not a size from 1 byte to 1GiB; write for example 65536, 64KiB or 4MiB", text)
	}
	return n * times, nil
}
