package manifest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// elsewhere says what other tools' keys, and the columns of the table, are
// called in a schedule.
var elsewhere = map[string]string{
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

// suggest ends the message of an unknown key: with a known one that it may be a
// slip of, or with all that are known.
func suggest(name string, known []string, others map[string]string) string {
	plain := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	if right, ok := others[plain]; ok {
		return "; write " + right
	}
	best, nearest := 2, "" // more than two slips are another word
	for _, k := range append(slices.Sorted(maps.Keys(others)), known...) {
		if d := slips(plain, k); d <= min(best, max(1, len(k)/3)) {
			best, nearest = d, k
		}
	}
	if nearest != "" {
		return "; did you mean " + cmp.Or(others[nearest], nearest) + "?"
	}
	return "; use one of " + strings.Join(known, ", ")
}

// slips counts the letters to add, leave out or replace, and the neighbours to
// swap, until a is b. It gives up at lengths that differ a lot.
func slips(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	above := make([]int, len(b)+1) // the row of a[:i-1], and before it that of a[:i-2]
	before := above
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(above[j], row[j-1]) + 1
			if a[i-1] == b[j-1] {
				row[j] = min(row[j], above[j-1])
			}
			row[j] = min(row[j], above[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
