package scheduler

import (
	"strings"
	"testing"
	"time"
)

func TestJobProblems(t *testing.T) {
	good := Schedule{Name: "x", Spec: "@daily", Kind: "job", Command: "welcome"}
	for _, c := range []struct {
		change func(*Schedule)
		want   string
	}{
		{func(s *Schedule) { s.Stdin = `[1, "two"]`; s.Job.Queue = "mail" }, ""},
		{func(s *Schedule) { s.Command = "" }, "command: there is no command"},
		{func(s *Schedule) { s.Command = " x" }, "command: is not a kind of job: "},
		{func(s *Schedule) { s.Stdin = "{" }, "stdin: is not JSON: unexpected end of JSON input"},
		{func(s *Schedule) { s.Stdin = strings.Repeat("[", 1001) + strings.Repeat("]", 1001) }, "stdin: it is nested more than 1000 levels deep"},
		{func(s *Schedule) { s.Stdin = `"` + strings.Repeat("x", 1<<20) + `"` }, "stdin: is longer than 1 MiB"},
		{func(s *Schedule) { s.Job.Queue = "mail " }, "job_queue: "},
		{func(s *Schedule) { s.Job.Key = strings.Repeat("k", 201) }, "job_key: "},
		{func(s *Schedule) { s.Job.Priority = 5 }, "job_priority: 5 is not 1 (urgent) to 4 (idle)"},
		{func(s *Schedule) { s.Job.MaxAttempts = -1 }, "job_max_attempts: -1 is not 0 to 1000000"},
		{func(s *Schedule) { s.Job.Timeout = -1 }, "job_timeout: "},
		{func(s *Schedule) { s.Job.Unique, s.Job.UniqueFor = "u", time.Hour }, ""},
		{func(s *Schedule) { s.Job.Unique = " u" }, "job_unique: "},
		{func(s *Schedule) { s.Job.UniqueFor = time.Hour }, "job_unique_for: there is no unique key"},
		{func(s *Schedule) { s.Job.Unique, s.Job.UniqueFor = "u", -time.Hour }, "job_unique_for: "},
		{func(s *Schedule) { s.Kind, s.Job.Unique = "shell", "u" }, "job: queue, key and the like are for jobs, not for the kind shell"},
		{
			func(s *Schedule) { s.MaxAttempts = 2 },
			"max_attempts: is not for jobs, which their queue tries again; say it of the job (job_max_attempts)",
		},
		{func(s *Schedule) { s.Timeout = time.Hour }, "timeout: is not for jobs, which their queue ends; say it of the job (job_timeout)"},
		{func(s *Schedule) { s.Env = map[string]string{"A": "b"} }, "env: is for commands, not for the kind job"},
		{func(s *Schedule) { s.Kind, s.Job.Queue = "shell", "mail" }, "job: queue, key and the like are for jobs, not for the kind shell"},
	} {
		s := good
		c.change(&s)
		var got []string
		for _, p := range s.Problems() {
			got = append(got, p.Field+": "+p.Text)
		}
		if text := strings.Join(got, "; "); c.want == "" && text != "" || !strings.HasPrefix(text, c.want) || len(got) > 1 {
			t.Errorf("got %q, want %q", text, c.want)
		}
	}
}
