package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Views for people at the SQL prompt: schedules with their next and last runs, and runs.
func TestViews(t *testing.T) {
	dbtest.SkipGated(t, "migrations leave views out there")
	each(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "it's daily", "@every 1h")
		add(t, db, "idle", "@every 1h")
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {now + 600000000}, next_exec = {now + 600000000}, job_priority = 1, failures = 2 WHERE name <> 'idle'`, nil)
		db.Do(t, `UPDATE {prefix}schedule SET state = 'paused', reason = 'lunch' WHERE name = 'idle'`, nil)
		for i, state := range []string{"'ok'", "'failed'"} {
			due := int64(i-2) * time.Hour.Microseconds()
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, exec_by, cause, started_at, finished_at, exit_code, error, output)
				VALUES ('it''s daily', {now + :due}, 1, `+state+`, 'host:1:x', 'hand', {now + :begun}, {now + :ended}, 3, 'why', 'said')`,
				sqlrun.Args{"due": due, "begun": due + 5_000_000, "ended": due + 7_500_000})
		}
		db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, exec_by, next_exec, started_at) VALUES ('it''s daily', {now}, 1, 'running', 'host:1:x', {now + 60000000}, {now})`, nil)
		got := db.List(t, `SELECT name, state, reason, job_priority, running_runs, COALESCE(last_state, '-'), COALESCE(last_error, '-'), failures,
			CASE WHEN next_at IS NULL THEN 'no' WHEN next_in_seconds BETWEEN 300 AND 600.1 THEN 'soon' ELSE 'wrong' END FROM {prefix}v_schedule ORDER BY name`, nil)
		if want := []string{"idle paused lunch normal 0 - - 0 no", "it's daily active  urgent 1 failed why 2 soon"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		got = db.List(t, `SELECT state, cause, daemon, exit_code, error, output, CASE WHEN late_seconds BETWEEN 4.9 AND 5.1 AND took_seconds BETWEEN 2.4 AND 2.6 THEN 'right' ELSE 'wrong' END
			FROM {prefix}v_run WHERE finished_at IS NOT NULL ORDER BY id`, nil)
		if want := []string{"ok run by hand host:1:x 3 why said right", "failed run by hand host:1:x 3 why said right"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		if got := db.List(t, `SELECT COUNT(*) FROM {prefix}v_run WHERE state = 'running' AND took_seconds BETWEEN 0 AND 300`, nil); got[0] != "1" {
			t.Errorf("%s runs are under way", got)
		}
	})
}
