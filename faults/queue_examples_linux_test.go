package faults

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// runTwice builds an example and runs two processes of it at once, on each engine. check then
// reports what is wrong with the tables.
func runTwice(t *testing.T, name string, args []string, says string, check func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	program := buildExample(t, name)
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const n = 2
		ended := make(chan bool, n)
		for range n {
			go func() {
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
				defer stop()
				cmd := exec.CommandContext(ctx, program, args...)
				cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // the dump shows where it hangs
				cmd.WaitDelay = 10 * time.Second
				cmd.Env = append(os.Environ(), "DBCRON_DATABASE_URL="+db.URL)
				out, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(out), says) {
					t.Errorf("%v: %s", err, out)
				}
				ended <- err == nil
			}()
		}
		for range n {
			<-ended
		}
		check(t, db)
	}, (*testing.T).Parallel)
}

// The example books each payment once, and those of one account in order.
func TestLedger(t *testing.T) {
	runTwice(t, "ledger", []string{"--accounts", "5", "--payments", "10"}, "all payments are booked", func(t *testing.T, db *dbtest.DB) {
		var all, right, dead int
		db.Scan(t, `SELECT COUNT(*), SUM(CASE WHEN booked = 10 AND cents = 1000 THEN 1 ELSE 0 END), (SELECT COUNT(*) FROM {prefix}job_dead) FROM example_account`,
			nil, &all, &right, &dead)
		if all != 10 || right != all || dead != 0 {
			t.Errorf("of %d accounts %d are right; %d payments are dead", all, right, dead)
		}
	})
}

// The example counts each click once.
func TestClicks(t *testing.T) {
	runTwice(t, "clicks", []string{"--clicks", "300"}, "all clicks are counted", func(t *testing.T, db *dbtest.DB) {
		var pages, right int
		if db.Scan(t, `SELECT COUNT(*), SUM(CASE WHEN clicks = 100 THEN 1 ELSE 0 END) FROM example_page`, nil, &pages, &right); pages != 6 ||
			right != pages {
			t.Errorf("of %d pages %d are right", pages, right)
		}
	})
}

// The example notifies each subscriber of each order.
func TestTopic(t *testing.T) {
	runTwice(t, "topic", []string{"--orders", "5"}, "5 orders, and 10 copies are done", func(t *testing.T, db *dbtest.DB) {
		var groups, members int
		db.Scan(t, `SELECT (SELECT COUNT(*) FROM {prefix}job_group WHERE state = 'done'), (SELECT COUNT(*) FROM {prefix}job_member WHERE state = 'done')`, nil, &groups, &members)
		if groups != 10 || members != 20 {
			t.Errorf("of 10 publications %d are done, with %d copies", groups, members)
		}
	})
}
