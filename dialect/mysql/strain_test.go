package mysql_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
)

// How long a transaction has been open depends on no time zone: not on the session's, the server's, or that of the
// server's host, in which the server's own view tells when the transaction began. dbserver's MySQL is west of UTC, its
// MariaDB east. A session that believes that it is later sees the transaction older.
//
// The class is a time of a server's own view beside one of ours. These are all that dbcron reads of that kind; those of
// PostgreSQL have a zone.
func TestTransactionsHaveAnAgeInEachTimeZone(t *testing.T) {
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		var before, after, id int64
		now := func(at *int64) { db.Scan(t, "SELECT UNIX_TIMESTAMP()", nil, at) }
		db.Do(t, "CREATE TABLE x (id INTEGER PRIMARY KEY)", nil)
		now(&before)
		tx := db.Begin(t, nil)
		_, err := tx.ExecContext(t.Context(), "INSERT INTO x VALUES (1)")
		dbtest.Must(t, err)
		dbtest.Must(t, tx.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		now(&after)

		at := func(seconds int64, zone string) *dbtest.DB {
			own := dbtest.Open(t, fmt.Sprintf("%s?timestamp=%d", db.URL, seconds), dialect.Options{MaxConns: 1})
			if zone != "" { // as in a pool that is wrapped
				_, err := own.Pool().ExecContext(t.Context(), "SET time_zone = '"+zone+"'")
				dbtest.Must(t, err)
			}
			return own
		}
		aged := regexp.MustCompile(fmt.Sprintf(`connection %d has .*open for (\d+):(\d\d):(\d\d)$`, id))
		ageOf := func(line string) (age int64, is bool) {
			var h, m, s int64
			found := aged.FindStringSubmatch(line)
			if found != nil {
				_, err := fmt.Sscan(strings.Join(found[1:], " "), &h, &m, &s)
				dbtest.Must(t, err)
			}
			return h*3600 + m*60 + s, found != nil
		}
		old := func(db *dbtest.DB) string {
			found, err := db.Dialect.Strain(t.Context(), db.DB)
			dbtest.Must(t, err)
			for _, f := range found {
				if strings.Contains(f.Detail, fmt.Sprintf(" connection %d ", id)) {
					return f.Detail
				}
			}
			return ""
		}
		for _, zone := range []string{"", "-11:00", "+13:00"} {
			if line := old(at(before+598, zone)); line != "" {
				t.Errorf("session in %q, before ten minutes: %s", zone, line)
			}
			late := at(after+602, zone)
			dbtest.Eventually(t, "the transaction is old", func() bool { // five are named: others of the server may be older
				age, is := ageOf(old(late))
				return is && 600 <= age && age <= after-before+603
			})
			dbtest.Eventually(t, "the transaction is named", func() bool {
				lines, err := late.TableLockHolders(t.Context())
				dbtest.Must(t, err)
				for _, line := range lines {
					if age, is := ageOf(line); is {
						return 600 <= age && age <= after-before+603
					}
				}
				return false
			})
		}
	})
}

// When the host's clock is put forward or back, a transaction is never taken for an hour older than it is.
func TestTransactionsAreNotAnHourOlderWhenTheClockChanges(t *testing.T) {
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		var zone, summer string
		db.Scan(t, "SELECT CONVERT_TZ('2025-01-15 12:00:00', '+00:00', 'SYSTEM'), CONVERT_TZ('2025-07-15 12:00:00', '+00:00', 'SYSTEM')", nil, &zone, &summer)
		if !strings.HasSuffix(zone, " 07:00:00") || !strings.HasSuffix(summer, " 08:00:00") {
			t.Skip("the server's host is not in America/New_York, as dbserver's MySQL is")
		}
		for _, c := range []struct {
			started, now string
			age, least   int64
		}{
			{"2025-01-15 01:59:00", "2025-01-15T07:00:00Z", 60, 60},
			{"2025-07-15 01:59:00", "2025-07-15T06:00:00Z", 60, 60},
			{"2025-03-09 01:59:00", "2025-03-09T07:00:00Z", 60, 60},     // 01:59 EST, 03:00 EDT
			{"2025-03-09 01:40:00", "2025-03-09T07:00:00Z", 1200, 1200}, // so far before
			{"2025-11-02 01:59:00", "2025-11-02T06:00:00Z", 60, 0},      // 01:59 EDT, 01:00 EST
			{"2025-11-02 01:00:00", "2025-11-02T06:01:00Z", 60, 60},     // 01:00 EST, 01:01 EST
			{"2025-11-02 00:59:00", "2025-11-02T07:00:00Z", 7260, 3660},
		} {
			now, err := time.Parse(time.RFC3339, c.now)
			dbtest.Must(t, err)
			own := dbtest.Open(t, fmt.Sprintf("%s?timestamp=%d", db.URL, now.Unix()), dialect.Options{})
			var age int64
			own.Scan(t, "SELECT "+strings.ReplaceAll(mysql.OpenFor, "trx_started", "TIMESTAMP'"+c.started+"'"), nil, &age)
			if age < c.least || age > c.age {
				t.Errorf("from %s to %s: %d seconds, want %d to %d", c.started, c.now, age, c.least, c.age)
			}
		}
	})
}
