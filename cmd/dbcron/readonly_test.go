package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/sqlschema"
)

// A command that writes waits for a server that takes writes, as long as it waits for one that
// answers. One that reads is content with a standby.
func TestCommandsOnAServerThatTakesNoWrites(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		user, asUser := restricted(t, db)
		for _, grant := range documentedGrants(t, db, health.DaemonRole, user) {
			db.Do(t, grant, nil)
		}
		db.Do(t, `ALTER ROLE `+user+` SET default_transaction_read_only = on`, nil)
		command := func(errs io.Writer, args ...string) (code int) {
			p := &program{in: strings.NewReader(""), out: io.Discard, err: errs, environ: []string{"DBCRON_DATABASE_URL=" + asUser}}
			return run(t.Context(), p, args)
		}

		var errs bytes.Buffer
		if code := command(&errs, "queue", "set", "mail", "--max-attempts", "3", "--connect-timeout", "1ms"); code != exitFailure ||
			!strings.Contains(errs.String(), "gave up after 1ms (--connect-timeout)") ||
			!strings.Contains(errs.String(), "takes no writes: transaction_read_only = on") {
			t.Errorf("exit code %d: %s", code, &errs)
		}
		errs.Reset()
		if code := command(&errs, "queue", "list", "--connect-timeout", "1ms"); code != exitOK || errs.Len() > 0 {
			t.Errorf("list: exit code %d: %s", code, &errs)
		}
		rows, code := examined(t, asUser)
		if code == exitOK || len(ofCheck(rows, "rights")) > 0 {
			t.Errorf("doctor: exit code %d, %v", code, rows)
		}
		if w := ofCheck(rows, "writable"); len(w) != 1 || w[0].Status != "failed" || !strings.Contains(w[0].Advice, "primary") {
			t.Errorf("doctor: %v", w)
		}

		promoted := &onText{text: "the database takes no writes; trying for 30s", do: func() {
			db.Do(t, `ALTER ROLE `+user+` RESET default_transaction_read_only`, nil)
		}}
		if code := command(promoted, "queue", "set", "mail", "--max-attempts", "3"); code != exitOK || promoted.do != nil {
			t.Errorf("exit code %d: %s", code, promoted.all.String())
		}
	})
}

// On a replica doctor says what the server is, and nothing about rights, which it cannot find
// out there. Read-only commands work.
func TestDoctorOnAReplica(t *testing.T) {
	for _, e := range dbserver.Engines {
		if e.Name == "postgres" {
			continue // see above
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			server, err := e.Start(t.Context(), dbserver.Options{}) // the setting is the server's
			if err != nil {
				dbtest.Missing(t, err)
			}
			t.Cleanup(func() { _ = server.Stop() })
			admin := dbtest.Open(t, server.URL(), dialect.Options{})
			if err := sqlschema.Migrate(t.Context(), admin.DB); err != nil {
				t.Fatal(err)
			}
			admin.Do(t, `CREATE USER app@'%' IDENTIFIED BY 'x'`, nil)
			admin.Do(t, `GRANT ALL ON test.* TO app@'%'`, nil)
			admin.Do(t, `SET GLOBAL read_only = 1`, nil)
			_, host, _ := strings.Cut(server.URL(), "@")
			rows, code := examined(t, "mysql://app:x@"+host)
			if code == exitOK || len(ofCheck(rows, "rights")) > 0 {
				t.Errorf("exit code %d, %v", code, rows)
			}
			for _, r := range rows {
				if (r.Status != "ok") != (r.Name == "writable") || r.Name == "writable" &&
					!strings.Contains(r.Detail, "takes no writes: read_only = ON") {
					t.Errorf("%+v", r)
				}
			}
			var errs bytes.Buffer
			p := &program{in: strings.NewReader(""), out: io.Discard, err: &errs, environ: []string{"DBCRON_DATABASE_URL=mysql://app:x@" + host}}
			if code := run(t.Context(), p, []string{"schedule", "list"}); code != exitOK || errs.Len() > 0 {
				t.Errorf("list: exit code %d: %s", code, &errs)
			}
		})
	}
}

// An onText does something when a text has been written.
type onText struct {
	text string
	do   func()
	all  strings.Builder
}

func (o *onText) Write(p []byte) (int, error) {
	o.all.Write(p)
	if o.do != nil && strings.Contains(o.all.String(), o.text) {
		o.do()
		o.do = nil
	}
	return len(p), nil
}
