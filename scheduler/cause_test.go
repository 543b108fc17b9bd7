package scheduler

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A failure is passed on to what it starts: a command, a request, a function and a job.
func TestCauseIsTold(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		headers := make(chan http.Header, 1)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header }))
		defer server.Close()
		causes := make(chan *Running, 1)
		for name, s := range map[string]Schedule{
			"command": {Command: `env | grep ^DBCRON_CAUSE | sort; cat`},
			"own":     {Command: `cat`, Stdin: "mine\n"},
			"http":    {Kind: "http", Command: "POST " + server.URL},
			"func":    {Kind: "func", Command: "tell"},
			"job":     {Kind: "job", Command: "tell"},
		} {
			s.Name, s.Spec = name, "@manual"
			addJob(t, db, s)
			addJob(t, db, Schedule{Name: "before-" + name, Spec: "@manual", Command: "echo Bänder fehlen; exit 3", Policy: Policy{OnFailure: name}})
			if _, err := Start(t.Context(), db.DB, "before-"+name); err != nil {
				t.Fatal(err)
			}
		}
		d := daemon(t, db, Options{})
		if err := d.Handle("tell", func(_ context.Context, run *Running) error { causes <- run; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		output := func(name string) string {
			t.Helper()
			runs, err := History(t.Context(), db.DB, name, 10)
			if err != nil || len(runs) != 1 || runs[0].State != "ok" || runs[0].Cause != "chain" {
				t.Fatalf("%s: %v, %+v", name, err, runs)
			}
			return runs[0].Output
		}
		got := output("command")
		for _, want := range []string{
			"DBCRON_CAUSE_ERROR=exit code 3\nDBCRON_CAUSE_EXIT_CODE=3\nDBCRON_CAUSE_RUN_ID=",
			"\nDBCRON_CAUSE_SCHEDULE=before-command\nDBCRON_CAUSE_STATE=failed\nBänder fehlen\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("a command has %q, want %q", got, want)
			}
		}
		if got := output("own"); got != "mine\n" {
			t.Errorf("an input of its own: %q", got)
		}
		h := <-headers
		if h.Get("Dbcron-Cause-Schedule") != `"before-http"` || h.Get("Dbcron-Cause-State") != "failed" ||
			h.Get("Dbcron-Cause-Exit-Code") != "3" || h.Get("Dbcron-Cause-Error") != `"exit code 3"` {
			t.Errorf("a request has %v", h)
		}
		if run := <-causes; run.By == nil || run.By.Schedule != "before-func" || run.By.ExitCode != 3 || run.Input != "Bänder fehlen\n" {
			t.Errorf("a function has %+v", run.By)
		}
		var payload string
		db.Scan(t, `SELECT payload FROM {prefix}job WHERE kind = 'tell'`, nil, &payload)
		var slot Slot
		if err := json.Unmarshal([]byte(payload), &slot); err != nil || slot.Schedule != "job" || slot.Cause == nil ||
			slot.Cause.Schedule != "before-job" || slot.Cause.Output != "Bänder fehlen\n" {
			t.Errorf("a job has %s, %v", payload, err)
		}
	})
}
