package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
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
	queueSpan("retry_delay", "none", 0, 0, "10s", "time before the second attempt; doubles with each further one",
		func(q *admin.Queue) *time.Duration { return &q.RetryDelay }),
	queueSpan("retry_max_delay", "none", 0, 0, "1h", "time between two attempts at the most",
		func(q *admin.Queue) *time.Duration { return &q.RetryMaxDelay }),
	queueKeyRetry(),
	queueFIFO(),
	queueSpan("timeout", "none", 0, 0, "none", "time after which an attempt has failed",
		func(q *admin.Queue) *time.Duration { return &q.Timeout }),
	queueNumber("max_crashes", "3", "worker crashes after which a job is dead", func(q *admin.Queue) *int { return &q.MaxCrashes }),
	queueSpan("keep_dead", "forever", -1, 0, "90d", "how long dead jobs are kept", func(q *admin.Queue) *time.Duration { return &q.KeepDead }),
	queueKeepDeadMax(),
	queueSpan("keep_done", "none", 0, 0, "none", "how long jobs that are done are kept",
		func(q *admin.Queue) *time.Duration { return &q.KeepDone }),
	queueSize("max_payload", "1MiB", "how large a job's payload may be", func(q *admin.Queue) *int { return &q.MaxPayload }),
	queueSpan("poll_min", "", 0, time.Millisecond, "2ms",
		"shortest time between two polls, after jobs were found, where workers are not notified",
		func(q *admin.Queue) *time.Duration { return &q.PollMin }),
	queueSpan("poll_max", "", 0, time.Millisecond, "250ms", "longest time between two polls",
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
	if s.shape == "yes|no" {
		c.Flags().Lookup(s.flag()).NoOptDefVal = "yes"
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
		"fifo", "yes|no", "no", "whether its jobs are done one after the other, in the order in which they were enqueued",
		func(q *admin.Queue) string {
			if q.FIFO {
				return "yes"
			}
			return "no"
		},
		func(q *admin.Queue, text string) error {
			if text != "yes" && text != "no" {
				return fmt.Errorf("%q is not known; use yes or no", text)
			}
			q.FIFO = text == "yes"
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

// queueSpan is a setting that is a duration of at least least, or a word.
func queueSpan(name, word string, means, least time.Duration, usual, usage string, field func(*admin.Queue) *time.Duration) queueSetting {
	return queueSetting{
		name, "duration" + orShape(word), usual, usage,
		func(q *admin.Queue) string { return spanText(*field(q), word, means) },
		func(q *admin.Queue, text string) error {
			if word != "" && text == word {
				*field(q) = means
				return nil
			}
			d, err := notNegative(text)
			switch {
			case err != nil:
				return err
			case d < least:
				return fmt.Errorf("%q is less than %v", text, least)
			}
			*field(q) = d
			return nil
		},
	}
}

func spanText(d time.Duration, word string, means time.Duration) string {
	if word != "" && (d == means || d < 0) {
		return word
	}
	if d == 0 {
		return "0s"
	}
	return duration.Format(d)
}

// notNegative parses a duration, and explains an error about its sign.
func notNegative(text string) (time.Duration, error) {
	if text == "" {
		return 0, errors.New("is empty")
	}
	if strings.HasPrefix(text, "-") {
		return 0, fmt.Errorf("%q is negative", text)
	}
	return duration.Parse(text)
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

// A queueSettingsRow has the settings in the form in which the flags of dbcron queue set take them.
type queueSettingsRow struct {
	MaxAttempts   int    `json:"max_attempts"`
	RetryDelay    string `json:"retry_delay"`
	RetryMaxDelay string `json:"retry_max_delay"`
	KeyRetry      string `json:"key_retry"`
	FIFO          string `json:"fifo"`
	Timeout       string `json:"timeout"`
	MaxCrashes    int    `json:"max_crashes"`
	KeepDead      string `json:"keep_dead"`
	KeepDeadMax   string `json:"keep_dead_max"`
	KeepDone      string `json:"keep_done"`
	MaxPayload    int    `json:"max_payload"`
	PollMin       string `json:"poll_min"`
	PollMax       string `json:"poll_max"`
	Notify        string `json:"notify"`
}

func newQueueSettingsRow(q *admin.Queue) queueSettingsRow {
	text := map[string]string{}
	for _, s := range queueSettings {
		text[s.name] = s.get(q)
	}
	return queueSettingsRow{
		q.MaxAttempts, text["retry_delay"], text["retry_max_delay"], text["key_retry"], text["fifo"], text["timeout"],
		q.MaxCrashes, text["keep_dead"], text["keep_dead_max"], text["keep_done"], q.MaxPayload, text["poll_min"], text["poll_max"], q.Notify,
	}
}
