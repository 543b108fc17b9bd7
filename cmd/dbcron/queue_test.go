package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/queue/admin"
)

// TestQueueUsage runs command lines that are refused before a database is opened:
// here there is none.
func TestQueueUsage(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"queue show", "accepts 1 arg"},
		{"queue show x -o yaml", "yaml"},
		{"queue set x --max-attempts 0 --timeout soon", "2 errors to correct"},
		{"queue resize x 0", `blocks: "0" is not a number from 1 to 1000`},
		{"queue peek x -n 0", "-n 0"},
		{"job enqueue", "the kind is missing"},
		{"job enqueue x nothing", "not JSON"},
		{"job enqueue x 1 --delay -1s", "negative"},
		{"job enqueue x 1 --priority high", "urgent, normal, low, idle"},
		{"job enqueue x -", "empty"},
		{"job get x", "it is not an id"},
		{"job list --state ended", "ended"},
		{"job retry 1 x", "it is not an id"},
		{"job cancel 1 --queue ", "it is empty"},
		{"job cancel --queue x", "choose jobs by"},
		{"job retry 1 --kind x", "goes with a filter"},
		{"job delete --kind ", "--kind is empty"},
		{"job delete --kind x", "not a terminal"},
		{"queue purge x", "not a terminal"},
		{"queue purge x --state running --yes", "running"},
	} {
		var out, errs bytes.Buffer
		p := &program{
			in: strings.NewReader(""), out: &out, err: &errs,
			environ: []string{"DBCRON_DATABASE_URL=postgres://nobody@127.0.0.1:1/none"},
		}
		if code := run(t.Context(), p, strings.Split(c.line, " ")); code != exitUsage {
			t.Errorf("%s: exit code %d", c.line, code)
		}
		if out.Len() > 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: prints %q and says %q, want %q", c.line, &out, &errs, c.want)
		}
	}
}

// TestUsualQueue checks that the documented defaults can be parsed.
func TestUsualQueue(t *testing.T) {
	q := usualQueue("x")
	for i := range queueSettings {
		s := &queueSettings[i]
		if err := s.Set(&admin.Queue{}, s.Usual); err != nil || s.Text(&q) != s.Usual || s.Problem(&q) != "" {
			t.Errorf("%s: %q becomes %q, %v, %s", s.Name, s.Usual, s.Text(&q), err, s.Problem(&q))
		}
	}
}
