package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// However many keys and tenants the jobs have that are next, they are asked about in statements that each engine takes.
func TestNextOfManyNames(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, func(*admin.Queue) {})
		limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Running = 2 })
		var jobs []Job
		for i := range 8500 {
			j := Job{Kind: "x", Key: fmt.Sprint(i), Tenant: fmt.Sprint(i), Priority: Urgent + i%4}
			if i >= 8000 {
				j.Delay = time.Millisecond
			}
			jobs = append(jobs, j)
		}
		enqueueMany(t, c, jobs)
		eventually(t, "all that are due are seen", func() bool {
			n, err := adminOf(c).Next(t.Context(), "default")
			must(t, err)
			return n.Looked == len(jobs) && n.Held == 0
		})
	})
}
