package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A command whose output stops is ended like one that takes too long, and retried by the
// policy. One that keeps writing is not.
func TestStall(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add := func(name, command string, p Policy) {
			addJob(t, db, Schedule{Name: name, Command: command, Policy: p})
		}
		add("stands", "echo begun; sleep 600 & wait", Policy{Stall: time.Second, MaxAttempts: 2, RetryDelay: time.Hour, RetryPastNext: true})
		add("goes on", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo $i; sleep 0.2; done", Policy{Stall: time.Minute})
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{KillGrace: time.Hour, Lease: time.Hour}))
		all := allRuns(t, db, "stands")
		if len(all) != 2 || all[0].State != "timeout" || all[0].Error != "stalled: no output for 1s" || all[1].State != "waiting" {
			t.Errorf("what stands still: %+v", all)
		}
		if r := only(t, db, "goes on"); r.State != "ok" || !strings.HasSuffix(r.Output, "15\n") {
			t.Errorf("what goes on: %+v", r)
		}
	})
}
