package manifest_test

import (
	"strings"
	"testing"

	"github.com/dbcron/dbcron/internal/ops/manifest"
)

// A file of another tool is called that, in one line. One that is nearly ours keeps the messages about its keys.
func TestFilesOfOtherTools(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec:\n  schedule: '0 3 * * *'\n": "x:1: this is a CronJob of Kubernetes, and no file of schedules; its spec.schedule is spec here",
		"apiVersion: v1\nkind: ConfigMap\ndata: {}\n":                                                "this is a ConfigMap of Kubernetes",
		"name: nightly\non:\n  schedule:\n    - cron: '0 3 * * *'\njobs:\n  a: {runs-on: ubuntu}\n":  "this is a workflow of GitHub Actions",
		"on: {schedule: [{cron: '0 3 * * *'}]}\njobs: {}\n":                                          "this is a workflow of GitHub Actions",
		"services:\n  web: {image: x}\n":                                                             "this is a file of Docker Compose",
		"first_job:\n  cron: '*/5 * * * *'\n  class: 'HardWorker'\n  queue: hard\n":                  "this looks like a file of sidekiq-cron",
		"clean:\n  every: 1h\n  class: Clean\n":                                                      "this looks like a file of sidekiq-cron",
		"clean:\n  class: CleanJob\n  schedule: every day at 9am\n":                                  "this looks like a file of Solid Queue",
	} {
		_, err := manifest.Parse("x", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "examples/schedules") {
			t.Errorf("%s\n%v, not %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"apiVersion: 1\nschedules: []\n":       `unknown key "apiVersion"`,
		"a: {spec: '@daily', shell: 'true'}\n": `unknown key "a"`,
		"kind: CronJob\n":                      `unknown key "kind"`,

		"schedules:\n  - {name: a, spec: 'rate(5 minutes)', shell: 'true'}\n": "write @every 5m",
		"schedules:\n  - {name: a, spec: '0 0 12 * * ?', shell: 'true'}\n":    "write 0 12 * * *",
		"schedules:\n  - {name: a, spec: $SPEC, shell: 'true'}\n":             "a variable is not expanded in a spec",
	} {
		if _, err := manifest.Parse("x", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, not %q", text, err, want)
		}
	}
}
