package httpapi

import (
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
)

// Who enqueues is told after the first try that the database takes no writes, and can ask again: the library would try for a minute.
func TestWhoEnqueuesIsToldAtOnce(t *testing.T) {
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		u, err := url.Parse(db.URL)
		must(t, err)
		q := u.Query()
		q.Set("default_transaction_read_only", "on")
		u.RawQuery = q.Encode()
		var tries atomic.Int64
		opt := dialect.Options(db.Options())
		opt.Reading = true // opens, whatever the server takes
		far := dbtest.Open(t, u.String(), opt).Broken(t, &dbtest.Fault{
			Text: "INSERT", Random: func() (bool, bool) { tries.Add(1); return false, false },
		})
		s := serve(t, far.DB, Options{})
		s.post("/api/v1/jobs", object{"kind": "one"}).is(http.StatusServiceUnavailable)
		if n := tries.Load(); n == 0 || n > 3 {
			t.Errorf("it was tried %d times", n)
		}
	})
}
