package dashboard

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The overview has what dbcron doctor finds wrong with the database itself, and the rest of it stays when a check
// fails.
func TestChecksOfTheDatabase(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		fresh := func() *answer { return serve(t, db.DB, "", Options{Timeout: time.Minute}).get("") } // nothing is remembered yet
		fresh().has("Nothing. ", "the database passes its checks").lacks("Database:")

		db.Do(t, `INSERT INTO {prefix}job_group (id, state, created_at) VALUES (7, 'open', {now + :ago})`,
			sqlrun.Args{"ago": -48 * 3600 * 1_000_000})
		s := serve(t, db.DB, "", Options{Timeout: time.Minute})
		s.get("").has(`<li class="warn"><span class="what">Database: groups</span>`, "group 7 has been open since", "dbcron group seal 7").
			lacks("Nothing.", "could not be read")

		// The checks are not made again for each visitor.
		db.Do(t, `DELETE FROM {prefix}job_group`, nil)
		s.get("").has("Database: groups")
		fresh().lacks("Database:")

		db.Do(t, `ALTER TABLE {prefix}lock RENAME TO dbcron_lock_away`, nil)
		fresh().has(`<li class="bad"><span class="what">Database: the check of tables failed</span>`, "dbcron doctor", "Next runs").
			lacks("dbcron_lock", "could not be read")
		db.Do(t, `ALTER TABLE {prefix}lock_away RENAME TO dbcron_lock`, nil)

		db.Do(t, `INSERT INTO {prefix}migration (version_id, is_applied) VALUES (999, TRUE)`, nil)
		fresh().has(`<li class="bad"><span class="what">Database: schema</span>`, "use a dbcron that knows version 999")
	})
}

// A setting of a session that dbcron cannot work with is on the overview, as dbcron doctor says it.
func TestSettingsOfTheDatabase(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		set, subject := "SET SESSION sql_safe_updates = ON", "safe updates"
		switch db.Dialect.Name {
		case "postgres":
			set, subject = "SET default_transaction_read_only = on", "writable"
		case "sqlite":
			set, subject = "PRAGMA busy_timeout = 0", "busy timeout"
		}
		db.Pool().SetMaxOpenConns(1) // which is the one that the page gets, too
		_, err := db.Pool().ExecContext(t.Context(), set)
		must(t, err)
		found, err := db.Findings(t.Context())
		must(t, err)
		at := slices.IndexFunc(found, func(f sqlrun.Finding) bool { return f.Subject == subject })
		if at < 0 || found[at].OK || found[at].Advice == "" {
			t.Fatalf("got %+v", found)
		}
		serve(t, db.DB, "", Options{Timeout: time.Minute}).get("").
			has(`<li class="bad"><span class="what">Database: `+subject+`</span>`, found[at].Detail, found[at].Advice)
	})
}

// A slightly outdated result is shown while a new one is read, and a much older one is not.
func TestCacheInTheBackground(t *testing.T) {
	const every = 1000 * checkedEvery // nothing here takes as long, wherever it runs
	c := cache[int]{every: every}
	n, blocked, fail := 0, make(chan struct{}), false
	get := func() int {
		t.Helper()
		got, err := c.get(t.Context(), func(context.Context) (int, error) {
			if n++; n == 2 {
				<-blocked
			}
			if fail {
				return 0, errors.New("no")
			}
			return n, nil
		})
		must(t, err)
		return got
	}
	age := func(since instant.Instant) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.until = since
	}
	if a, b := get(), get(); a != 1 || b != 1 {
		t.Fatalf("got %d, %d", a, b)
	}
	age(instant.Now())
	if a, b := get(), get(); a != 1 || b != 1 {
		t.Fatalf("while it is read anew: got %d, %d", a, b)
	}
	c.mu.Lock()
	reading := c.reading
	c.mu.Unlock()
	close(blocked)
	<-reading.done
	if got := get(); got != 2 {
		t.Errorf("after that: got %d", got)
	}
	age(instant.Now().Add(-every))
	if got := get(); got != 3 {
		t.Errorf("what is old: got %d", got)
	}
	age(instant.Now())
	fail = true
	if got := get(); got != 3 {
		t.Errorf("when it cannot be read: got %d", got)
	}
}
