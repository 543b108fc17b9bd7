package faults

import (
	"bytes"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
)

// Sixteen processes of the example add to one number, with two statements per addition. No
// addition is lost.
func TestLockCounter(t *testing.T) {
	const processes = 16
	rounds := 25
	if *minutes > 0 {
		rounds = 1000
	}
	counter := buildExample(t, "counter")
	dbtest.Locks.Each(t, func(t *testing.T, db *dbtest.DB) {
		begun := instant.Now()
		all := make([]*exec.Cmd, processes)
		logs := make([]bytes.Buffer, processes)
		for i := range all {
			all[i] = exec.CommandContext(t.Context(), counter, "--url", db.URL, "--times", strconv.Itoa(rounds),
				"--guarded="+strconv.FormatBool(i%2 == 1))
			all[i].Stderr = &logs[i]
			if err := all[i].Start(); err != nil {
				t.Fatal(err)
			}
		}
		for i, cmd := range all {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, &logs[i])
			}
		}
		var n int
		db.Scan(t, `SELECT n FROM example_counter`, nil, &n)
		if n != processes*rounds {
			t.Errorf("%d processes added %d times each, and the number is %d", processes, rounds, n)
		}
		figures(t, map[string]int{"additions": n})
		t.Logf("%d × %d additions in %v", processes, rounds, instant.Now().Sub(begun).Round(10*time.Millisecond))
	})
}
