package manifest

import (
	"maps"
	"strconv"
	"strings"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/scheduler"
)

type schedule = scheduler.Schedule

// A key of a schedule, except those that say what to run: see work.go.
type key struct {
	name string
	set  *scheduler.Setting // of a key that is a setting
	own  bool               // it cannot be a default

	// read applies an entry of the file, or reports what is wrong with it.
	read func(*item, entry) bool

	// write returns the value for the file, or "" to omit the key.
	write func(*schedule) string
}

// inJob begins the names of settings that are keys of job: see job.go.
const inJob = "job_"

// keys are in the order in which they are read and written.
var keys = makeKeys()

func makeKeys() (all []key) {
	all = []key{
		{
			name: "name", own: true,
			read:  reads((*item).readText, func(s *schedule, text string) { s.Name = text }),
			write: func(s *schedule) string { return writeText(s.Name) },
		},
		{
			name: "spec",
			read: reads((*item).readText, func(s *schedule, text string) { s.Spec = text }),
			// Always quoted, so that copies with other specs stay valid YAML.
			write: func(s *schedule) string { return strconv.Quote(s.Spec) },
		},
		{name: "env", read: readEnv, write: func(s *schedule) string { return writeTexts(s.Env) }},
	}
	settings := scheduler.Settings()
	for i := range settings {
		if set := &settings[i]; !strings.HasPrefix(set.Name, inJob) {
			all = append(all, key{
				name: set.Name, set: set,
				read:  func(it *item, e entry) bool { return it.readSetting(e, set) },
				write: func(s *schedule) string { return writeSetting(s, set) },
			})
		}
	}
	return append(all, key{
		name: "paused",
		read: reads((*item).readFlag, func(s *schedule, is bool) {
			s.State = map[bool]string{true: "paused", false: "active"}[is] // so that a default of paused can be overridden
		}),
		write: func(s *schedule) string {
			if s.State == "paused" {
				return "true"
			}
			return ""
		},
	})
}

var (
	workKeys  = []string{"shell", "argv", "http", "sql", "func", "job"}
	inputKeys = []string{"stdin", "input"}
	httpKeys  = []string{"method", "url", "headers", "body"}

	// Keys allowed in a schedule and in defaults.
	scheduleKeys, defaultKeys = keyNames()
)

func keyNames() (ofSchedule, ofDefaults []string) {
	for _, k := range keys {
		ofSchedule = append(ofSchedule, k.name)
		if k.name == "spec" {
			ofSchedule = append(append(ofSchedule, workKeys...), inputKeys...)
		}
		if !k.own {
			ofDefaults = append(ofDefaults, k.name)
		}
	}
	return ofSchedule, ofDefaults
}

func reads[V any](read func(*item, entry) (V, bool), set func(*schedule, V)) func(*item, entry) bool {
	return func(it *item, e entry) bool {
		v, ok := read(it, e)
		set(&it.schedule, v)
		return ok
	}
}

// readEnv merges variables with those of the defaults.
func readEnv(it *item, e entry) bool {
	more, ok := it.readTexts(e)
	if it.Env = maps.Clone(it.Env); it.Env == nil {
		it.Env = more
	} else {
		maps.Copy(it.Env, more)
	}
	return ok
}

// readSetting checks the type of a value, which YAML may have guessed, and sets it.
func (it *item) readSetting(e entry, set *scheduler.Setting) bool {
	text, ok := it.readAs(e, set)
	if !ok {
		return false
	}
	err := set.Set(&it.schedule, text)
	if err != nil {
		text := err.Error()
		if strings.Contains(text, "longer") {
			text += "; use a shorter one"
		}
		it.fail(e.value.line, "%s: %s", e.key, text)
	}
	return err == nil
}

// readAs returns the text of a value of a setting.
func (it *item) readAs(e entry, set *scheduler.Setting) (string, bool) {
	v := e.value
	switch set.Kind {
	case setting.Flag:
		is, ok := it.readFlag(e)
		return strconv.FormatBool(is), ok
	case setting.Count:
		return it.readNumber(e, set.Words)
	case setting.Duration:
		if !it.scalar(e.key, v, "a duration") {
			return "", false
		}
		if v.node.Tag != "!!str" {
			it.fail(v.line, "%s is %s; write a duration with its unit, such as 90s, 1h30m or 30d", e.key, describe(v.node))
			return "", false
		}
		return v.node.Value, true
	case setting.Instant:
		return it.readInstant(e)
	}
	return it.readText(e)
}

func writeSetting(s *schedule, set *scheduler.Setting) string {
	switch {
	case set.Zero(s):
		return ""
	case set.Kind == setting.Text:
		return writeText(set.Text(s))
	}
	return set.Text(s)
}
