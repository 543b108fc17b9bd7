package checkup

import (
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

// durations are the columns with a duration of the tables that a person may write.
func durations() map[string][]string {
	all := map[string][]string{"queue_limit": {"rate_per"}, "endpoint": {"timeout"}}
	for _, s := range admin.Settings() {
		if s.Kind == setting.Duration {
			all["queue"] = append(all["queue"], s.Name)
		}
	}
	for _, s := range scheduler.Settings() {
		if s.Kind == setting.Duration {
			all["schedule"] = append(all["schedule"], s.Name)
		}
	}
	return all
}

// The database refuses what is no duration, in words that name the column, and takes each way to write one: neither a worker
// nor a daemon has to find it. The class is what a person writes into a table of settings; TestUnknownWordsAreRefused of
// sqlschema has the words. Tables that each job or lock changes have no such checks (adr/0072).
func TestTheDatabaseRefusesWhatIsNoDuration(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		must(t, sqlschema.Migrate(t.Context(), db.DB))
		db.Do(t, `INSERT INTO {prefix}queue (name) VALUES ('one')`, nil)
		db.Do(t, `INSERT INTO {prefix}queue_limit (queue_id, max_running) SELECT queue_id, 1 FROM {prefix}queue`, nil)
		db.Do(t, `INSERT INTO {prefix}endpoint (queue_id, secret) SELECT queue_id, :secret FROM {prefix}queue`, sqlrun.Args{"secret": push.NewSecret()})
		db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command) VALUES ('one', '@daily', 'true')`, nil)
		columns := 0
		for table, all := range durations() {
			for _, column := range all {
				columns++
				for _, value := range []string{"1 hour", "soon", "5", "-5s", "10s ", "1H", "h"} {
					_, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}`+table+` SET `+column+` = :value`), sqlrun.Args{"value": value})
					if !db.Dialect.Refused(err) || !strings.Contains(err.Error(), column) || !strings.Contains(err.Error(), "duration") {
						t.Errorf("%s.%s = %q: %v", table, column, value, err)
					}
				}
				for _, value := range []string{"", "none", "forever", "500ms", "1w2d3h4m5.5s", "30d", ".5s", "3us", "3µs", "3μs", "7ns", "0s"} {
					_, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}`+table+` SET `+column+` = :value`), sqlrun.Args{"value": value})
					if err != nil {
						t.Errorf("%s.%s = %q: %v", table, column, value, err)
					}
				}
			}
		}
		if columns < 20 {
			t.Errorf("there were %d columns", columns)
		}
	})
}
