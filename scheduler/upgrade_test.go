package scheduler

import (
	"errors"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/sqlschema"
)

// A daemon goes on through an upgrade that another program makes, as docs/upgrading.md says, beside one of the next
// version, and does not start again on the newer tables.
func TestADaemonGoesOnThroughAnUpgrade(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		addCommand(t, db, "often", "@every 1s", "true")
		by := func(s *Scheduler) (n int) {
			for _, r := range allRuns(t, db, "often") {
				if r.By == s.Node() && r.State == "ok" {
					n++
				}
			}
			return n
		}
		old := daemon(t, db, Options{})
		stop := running(t, old)
		eventually(t, "a run before the upgrade", func() bool { return by(old) > 0 })

		next := *db
		next.DB = dbtest.NextVersion(db.DB)
		dbtest.Must(t, sqlschema.Migrate(t.Context(), next.DB))
		before := by(old)
		eventually(t, "runs of the old daemon on the new tables", func() bool { return by(old) > before })
		if err := daemon(t, db, Options{}).Run(t.Context()); !errors.Is(err, sqlschema.ErrNewer) {
			t.Errorf("another daemon of the version before: %v", err)
		}
		later := daemon(t, &next, Options{})
		stopLater := running(t, later)
		stop()
		eventually(t, "a run of the new daemon", func() bool { return by(later) > 0 })
		stopLater()
	})
}
