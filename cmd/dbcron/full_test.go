package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/health"
)

// A command waits for a connection when its user has as many as they may, as it waits for a server that is not up
// yet: another process lets go of one. The class is what a server says of itself and not of the client, at the start:
// these were looked for in each engine's list of errors (Full, Unavailable, Temporary).
func TestCommandsWaitForAConnection(t *testing.T) {
	dbtest.Users.Each(t, func(t *testing.T, db *dbtest.DB) {
		user, asUser := restricted(t, db)
		limit := `ALTER ROLE ` + user + ` CONNECTION LIMIT %d`
		if !db.Dialect.Schema {
			limit = `ALTER USER ` + user + `@'%%' WITH MAX_USER_CONNECTIONS %d`
		}
		for _, grant := range documentedGrants(t, db, health.DaemonRole, user) {
			db.Do(t, grant, nil)
		}
		db.Do(t, fmt.Sprintf(limit, 5), nil) // MySQL counts no connections that began without a limit
		all := dbtest.Open(t, asUser, dialect.Options{})
		c, err := all.Pool().Conn(t.Context())
		dbtest.Must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		db.Do(t, fmt.Sprintf(limit, 1), nil)

		list := func(errs io.Writer, args ...string) int {
			p := &program{in: strings.NewReader(""), out: io.Discard, err: errs, environ: []string{"DBCRON_DATABASE_URL=" + asUser}}
			return run(t.Context(), p, append([]string{"queue", "list"}, args...))
		}
		var said strings.Builder
		if code := list(&said, "--connect-timeout", "1ms"); code != exitFailure || !strings.Contains(said.String(), "gave up after 1ms (--connect-timeout)") ||
			!strings.Contains(said.String(), "all connections that this user, the database or the server may have are taken") {
			t.Errorf("exit code %d: %s", code, &said)
		}
		freed := &onText{text: "the database lets nobody else in; trying for 30s", do: func() { db.Do(t, fmt.Sprintf(limit, 20), nil) }}
		if code := list(freed); code != exitOK || freed.do != nil {
			t.Errorf("exit code %d: %s", code, freed.all.String())
		}
	})
}
