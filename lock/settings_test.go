package lock

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
)

// What a program's own connections are set to changes nothing, or is refused
// when they are opened.
func TestSettings(t *testing.T) {
	settings := map[string][]string{
		"postgres": {
			"default_transaction_isolation=repeatable read", "default_transaction_isolation=serializable", "timezone=Pacific/Apia",
			"datestyle=SQL, DMY", "intervalstyle=sql_standard", "default_transaction_read_only=on", "standard_conforming_strings=off",
			"plan_cache_mode=force_generic_plan", "synchronous_commit=off", "default_query_exec_mode=simple_protocol",
		},
		"mysql": {
			"transaction_isolation='REPEATABLE-READ'", "transaction_isolation='SERIALIZABLE'", "tx_isolation='REPEATABLE-READ'",
			"tx_isolation='SERIALIZABLE'",
			"time_zone='-11:00'", "sql_mode='ANSI,TRADITIONAL'", "sql_mode='NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,PIPES_AS_CONCAT,ANSI_QUOTES'",
			"sql_mode=''", "tx_read_only=1", "transaction_read_only=1",
		},
		"sqlite": {},
	}
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, setting := range settings[db.Dialect.Name] {
			t.Run(setting, func(t *testing.T) {
				name, value, _ := strings.Cut(setting, "=")
				u, err := url.Parse(db.URL)
				must(t, err)
				query := u.Query()
				query.Set(name, value)
				u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
				other, err := engines.Open(t.Context(), u.String(), dialect.Options{})
				if err != nil {
					if !errors.Is(err, dialect.ErrUnfit) && !strings.Contains(err.Error(), "nknown system variable") {
						t.Errorf("refused with %v", err)
					}
					t.Logf("refused: %v", err)
					return
				}
				t.Cleanup(func() { _ = other.Close() })
				useAll(t, lockerOn(t, &dbtest.DB{DB: other, URL: db.URL}, Options{}), locker(t, db, Options{}))
			})
		}
	})
}

// useAll goes through all that leases can do, beside a rival.
func useAll(t *testing.T, l, rival *Locker) {
	t.Helper()
	le := l.mustTake(t, "x")
	if got := state(t, rival, "x"); got.Left > l.opt.TTL || got.Left < l.opt.TTL/2 {
		t.Errorf("it has %v left", got.Left)
	}
	_, err := rival.TryAcquire(t.Context(), "x")
	want(t, "a rival", err, ErrHeld)
	must(t, le.Extend(t.Context()))
	must(t, le.SetMeta(t.Context(), `it's \ "odd" | 100 %`))
	if got := state(t, rival, "x").Meta; got != `it's \ "odd" | 100 %` {
		t.Errorf("got %q", got)
	}
	tx, err := l.db.Pool().BeginTx(t.Context(), nil)
	must(t, err)
	must(t, le.Guard(t.Context(), tx))
	must(t, tx.Commit())
	done := rival.waits(t, t.Context(), "x")
	must(t, le.Release(t.Context()))
	must(t, result(t, done))
	again, err := l.Acquire(t.Context(), "x")
	granted(t, again, err)
	_, err = rival.ForceRelease(t.Context(), "x", 0, "me", "test")
	must(t, err)
	p := l.mustPool(t, "pool of "+t.Name(), 2)
	must(t, p.mustTake(t).Release(t.Context()))
	must(t, p.Resize(t.Context(), 1))
	_, err = l.Purge(t.Context(), time.Hour)
	must(t, err)
	kept, err := l.With(Options{MinHold: time.Hour, Heartbeat: -1})
	must(t, err)
	must(t, kept.mustTake(t, "kept by "+t.Name()).Release(t.Context()))
	if got := state(t, rival, "kept by "+t.Name()); got.State != Kept || got.Left < 59*time.Minute {
		t.Errorf("with a minimum hold: %+v", got)
	}
}
