package faults

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// The example takes orders in several processes and confirms each once.
func TestQueueOrders(t *testing.T) {
	t.Parallel()
	orders := buildExample(t, "orders")
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const n = 2
		ended := make(chan error, n)
		for range n {
			go func() {
				cmd := exec.CommandContext(t.Context(), orders, "--orders", "30")
				cmd.Env = append(os.Environ(), "DBCRON_DATABASE_URL="+db.URL)
				out, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(out), "all orders are confirmed") {
					t.Errorf("%v: %s", err, out)
				}
				ended <- err
			}()
		}
		for range n {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		var all, once int
		db.Scan(t, `SELECT COUNT(*), SUM(CASE WHEN confirmed = 1 THEN 1 ELSE 0 END) FROM example_order`, nil, &all, &once)
		if all != n*30 || once != all {
			t.Errorf("of %d orders %d are confirmed once", all, once)
		}
	}, (*testing.T).Parallel)
}
