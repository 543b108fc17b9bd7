package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// A run that hangs is found by the time that it takes, long before slots are skipped: of a nightly schedule, in the first night.
// The class: trouble that is only told by what follows from it.
func TestSlowRuns(t *testing.T) {
	dbtest.Dialects.Each(t, func(t *testing.T, db *dbtest.DB) {
		now, err := scheduler.Clock(t.Context(), db.DB)
		dbtest.Must(t, err)
		for i, c := range []struct {
			name, spec string
			timeout    time.Duration
			good       []time.Duration // how long its last good runs took
			under      time.Duration   // how long the present one takes
			want       string          // "": nothing
		}{
			{"nightly as ever", "@daily", 0, []time.Duration{time.Hour, 50 * time.Minute, time.Hour, 40 * time.Minute, time.Hour}, 2 * time.Hour, ""},
			{"nightly hangs", "@daily", 0, []time.Duration{time.Hour, 50 * time.Minute, time.Hour, 40 * time.Minute, time.Hour}, 3*time.Hour + time.Minute, "the longest of its last 5 good runs took 1h"},
			{"its timeout is near", "@daily", 4 * time.Hour, []time.Duration{1, 1, 1, 1, 1}, 3 * time.Hour, ""},
			{"short, and soon", "@every 5s", 0, []time.Duration{1, 1, 1, 1, 1}, 50 * time.Second, ""},
			{"short", "@every 5s", 0, []time.Duration{1, 1, 1, 1, 1}, 70 * time.Second, "the longest of its last 5 good runs took "},
			{"little history", "@every 1h", 0, []time.Duration{time.Second}, 20 * time.Minute, ""},
			{"little history, half an interval", "@every 1h", 0, []time.Duration{time.Second}, 31 * time.Minute, "the time to its next slot is half over"},
			{"by hand", "@manual", 0, nil, 31 * time.Hour, ""},
		} {
			dbtest.Must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{
				Name: c.name, Spec: c.spec, Kind: "shell", Command: "true", Policy: scheduler.Policy{Timeout: c.timeout},
			}))
			for k, took := range append(c.good, c.under) {
				state, end, next := "ok", `{now + :to}`, "NULL"
				from := -(time.Duration(100-k) * 24 * time.Hour)
				if k == len(c.good) {
					state, end, next, from, took = "running", "NULL", "{now + 1000000000}", -c.under, 0
				}
				args := sqlrun.Args{"name": c.name, "state": state, "from": from.Microseconds(), "claim": fmt.Sprint(i, k)}
				if state == "ok" {
					args["to"] = (from + took).Microseconds()
				}
				db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, next_exec, claim, exec_by)
					VALUES (:name, {now + :from}, 1, :state, {now + :from}, `+end+`, `+next+`, :claim, 'vm:1:x')`, args)
			}
			all, err := OfRuns(t.Context(), db.DB, now)
			if c.want == "" {
				wants(t, all, err)
			} else {
				wants(t, all, err, "A run of "+c.name+" takes longer than usual: run …has been under way for …on vm:1:x; "+c.want+"…dbcron schedule cancel ")
			}
			e, err := Explain(t.Context(), db.DB, c.name, 5, false)
			dbtest.Must(t, err)
			if said := fmt.Sprint(e.Causes); strings.Contains(said, ", longer than usual: "+c.want) != (c.want != "") {
				t.Errorf("explain of %s says %s", c.name, said)
			}
			db.Do(t, `DELETE FROM {prefix}run WHERE schedule = :name`, sqlrun.Args{"name": c.name})
			dbtest.Must(t, scheduler.Delete(t.Context(), db.DB, c.name))
		}
	})
}
