package manifest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/internal/plain"
)

// keysOfOthers maps the keys of other tools, and the columns of the table, to the keys of a
// schedule.
var keysOfOthers = map[string]string{
	"cron":              "spec",
	"crontab":           "spec",
	"schedule":          "spec",
	"interval":          "spec",
	"timezone":          "time_zone",
	"tz":                "time_zone",
	"zone":              "time_zone",
	"command":           "shell, or argv for a list of words",
	"cmd":               "shell, or argv for a list of words",
	"run":               "shell, or argv for a list of words",
	"script":            "shell, or argv for a list of words",
	"kind":              "one of the keys shell, argv, http, sql, func and job",
	"queue":             "job: {queue: ...}",
	"payload":           "job: {payload: ...}",
	"job_queue":         "job: {queue: ...}",
	"job_key":           "job: {key: ...}",
	"job_priority":      "job: {priority: ...}",
	"job_max_attempts":  "job: {max_attempts: ...}",
	"job_timeout":       "job: {timeout: ...}",
	"job_unique":        "job: {unique: ...}",
	"job_unique_for":    "job: {unique_for: ...}",
	"job_unique_until":  "job: {unique_until: ...}",
	"method":            "http: {method: ...}",
	"url":               "http: {url: ...}",
	"headers":           "http: {headers: ...}",
	"body":              "http: {body: ...}",
	"environment":       "env",
	"cwd":               "dir",
	"workdir":           "dir",
	"working_dir":       "dir",
	"working_directory": "dir",
	"run_as":            "user",
	"retries":           "max_attempts",
	"attempts":          "max_attempts",
	"concurrency":       "overlap",
	"starts_at":         "starts",
	"ends_at":           "ends",
	"state":             "paused",
	"suspend":           "paused",
	"enabled":           "paused",
	"disabled":          "paused",
	"active":            "paused",
}

// suggest returns the end of an error about an unknown key: a similar known key, or all known
// keys.
func suggest(name string, known []string, others map[string]string) string {
	word := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	if right, ok := others[word]; ok {
		return "; write " + right
	}
	if near := plain.Nearest(name, append(slices.Sorted(maps.Keys(others)), known...)); near != "" {
		return "; did you mean " + cmp.Or(others[near], near) + "?"
	}
	return "; use one of " + strings.Join(known, ", ")
}
