package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// dbcron runs a command line on a database in this process, and returns its output.
func dbcron(t *testing.T, db *dbtest.DB, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &out, err: &errs, signals: &signals{}, environ: []string{"DBCRON_DATABASE_URL=" + db.URL}}
	if code := run(t.Context(), p, args); code != 0 {
		t.Fatalf("%s: exit code %d: %s%s", strings.Join(args, " "), code, &out, &errs)
	}
	return out.String()
}

// saying is dbcron for commands that may fail. It returns what they write to both outputs.
func saying(t *testing.T, db *dbtest.DB, args ...string) string {
	t.Helper()
	var both bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &both, err: &both, signals: &signals{}, environ: []string{"DBCRON_DATABASE_URL=" + db.URL}}
	run(t.Context(), p, args)
	return both.String()
}

// TestExplainTellsWhyNothingIsClaimed has the claim of a slot, and that of a run by hand,
// fail: explain gives the last error, and when the next attempt is.
func TestExplainTellsWhyNothingIsClaimed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		dbcron(t, db, "schedule", "add", "slot", "--spec", "@every 1h", "--first-run", "now", "--job", "x")
		dbcron(t, db, "schedule", "add", "hand", "--spec", "@manual", "--job", "x")
		dbcron(t, db, "schedule", "run", "hand")
		db.Do(t, `ALTER TABLE {prefix}job RENAME TO dbcron_job_elsewhere`, nil)

		const again = ` [0-9-]+T[0-9:]+Z`
		for name, want := range map[string][]string{
			"slot": {
				`(?m)^state +active: could not be claimed: queue\..*dbcron_job`,
				`(?m)^why +daemons cannot claim it: could not be claimed: queue\..*dbcron_job`,
				`remove the cause; dbcron doctor finds missing rights; they try again at` + again,
			},
			"hand": {`(?m)^waiting +.*, is tried again at` + again + `: could not be claimed: queue\..*dbcron_job`},
		} {
			got := ""
			for !strings.Contains(got, "could not be claimed") { // small tables are locked whole: a claim may pass over a row
				if err := t.Context().Err(); err != nil {
					t.Fatalf("%v\n%s", err, got)
				}
				dbcron(t, db, "serve", "--once", "--no-migrate")
				got = dbcron(t, db, "schedule", "explain", name)
			}
			for _, line := range want {
				if !regexp.MustCompile(line).MatchString(got) {
					t.Errorf("%s: no %q in\n%s", name, line, got)
				}
			}
		}
		db.Do(t, `ALTER TABLE {prefix}job_elsewhere RENAME TO dbcron_job`, nil)
	})
}
