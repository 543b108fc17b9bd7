package manifest

import (
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
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
		case "queue":
			it.at["job_queue"] = e
			it.Job.Queue, right = it.readText(e)
		case "key":
			it.at["job_key"] = e
			it.Job.Key, right = it.readText(e)
		case "priority":
			it.Job.Priority, right = it.readPriority(e)
		case "max_attempts":
			it.at["job_max_attempts"] = e
			it.Job.MaxAttempts, right = it.readSomeNumber(e)
		case "timeout":
			it.at["job_timeout"] = e
			it.Job.Timeout, right = it.readSomeDuration(e)
		case "unique":
			it.at["job_unique"] = e
			it.Job.Unique, right = it.readText(e)
		case "unique_for":
			it.at["job_unique_for"] = e
			it.Job.UniqueFor, right = it.readSomeDuration(e)
		default:
			it.tellUnknown(e, " in job"+suggest(e.key, jobKeys, nil))
		}
		ok = ok && right
	}
	if !found {
		it.fail(e.line, "job has no kind, which picks its handler; add kind: KIND")
	}
	return ok && found
}

func (it *item) readPriority(e entry) (int, bool) {
	text, ok := it.readText(e)
	if !ok || text == "" {
		return 0, ok
	}
	n, err := wire.ParsePriority(text)
	if err != nil {
		it.fail(e.line, "%s: %v", e.key, err)
	}
	return n, err == nil
}

func writeJob(s *schedule) string {
	return writeMapping([]pair{
		{"kind", writeText(s.Command)},
		{"queue", writeText(s.Job.Queue)},
		{"payload", writeLines(s.Stdin)},
		{"key", writeText(s.Job.Key)},
		{"priority", wire.PriorityName(s.Job.Priority)},
		{"max_attempts", writeNumber(s.Job.MaxAttempts)},
		{"timeout", plain.FormatDuration(s.Job.Timeout)},
		{"unique", writeText(s.Job.Unique)},
		{"unique_for", plain.FormatDuration(s.Job.UniqueFor)},
	})
}
