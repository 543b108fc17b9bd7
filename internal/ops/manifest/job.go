package manifest

import (
	"strings"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/scheduler"
)

// readJob reads the job that a schedule enqueues.
func (it *item) readJob(e entry) bool {
	given, ok := it.mapping(e.key, e.value)
	if !ok {
		return false
	}
	found := false
	for _, e := range given {
		right := true
		switch e.key {
		case "kind":
			found = true
			it.at["command"] = e
			it.Command, right = it.readText(e)
		case "payload":
			it.at["stdin"] = e
			it.Stdin, right = it.readText(e)
		default:
			if set := setting.Named(scheduler.Settings(), inJob+e.key); set != nil {
				it.at[set.Name] = e
				right = it.readSetting(e, set)
			} else {
				it.tellUnknown(e, " in job"+suggest(e.key, jobKeys(), nil))
			}
		}
		ok = ok && right
	}
	if !found {
		it.fail(e.line, "job has no kind, which picks its handler; add kind: KIND")
	}
	return ok && found
}

// jobKeys returns the keys of job.
func jobKeys() []string {
	names := []string{"kind", "payload"}
	for _, set := range scheduler.Settings() {
		if name, ok := strings.CutPrefix(set.Name, inJob); ok {
			names = append(names, name)
		}
	}
	return names
}

func writeJob(s *schedule) string {
	all := []pair{{"kind", writeText(s.Command)}, {"payload", writeLines(s.Stdin)}}
	settings := scheduler.Settings()
	for i := range settings {
		if name, ok := strings.CutPrefix(settings[i].Name, inJob); ok {
			all = append(all, pair{name, writeSetting(s, &settings[i])})
		}
	}
	return writeMapping(all)
}
