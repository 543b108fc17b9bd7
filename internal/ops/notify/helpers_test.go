package notify

import (
	"crypto/tls"
	"net/mail"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/notify/smtptest"
	"github.com/dbcron/dbcron/scheduler"
)

// Short names of dbtest's.
var must, quiet = dbtest.Must, dbtest.Quiet

func notifier(t *testing.T, db *dbtest.DB, opt Options) *Notifier {
	t.Helper()
	if opt.Logger == nil {
		opt.Logger = quiet()
	}
	opt.gather = -1
	n, err := New(db.DB, opt)
	must(t, err)
	return n
}

func ask(t *testing.T, db *dbtest.DB, name string) {
	t.Helper()
	_, err := scheduler.Start(t.Context(), db.DB, name)
	must(t, err)
}

func runAll(t *testing.T, db *dbtest.DB) {
	t.Helper()
	s, err := scheduler.New(db.DB, scheduler.Options{Logger: quiet()})
	must(t, err)
	must(t, s.RunOnce(t.Context()))
}

func add(t *testing.T, db *dbtest.DB, name, command, notify string) {
	t.Helper()
	must(t, scheduler.Add(t.Context(), db.DB,
		scheduler.Schedule{Name: name, Spec: "@manual", Command: command, Policy: scheduler.Policy{Notify: notify}}))
}

func newMailServer(t *testing.T, config *tls.Config, login string) *smtptest.Server {
	t.Helper()
	s, err := smtptest.Start(smtptest.Options{TLS: config, Login: login})
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

func read(t *testing.T, l smtptest.Letter) (header mail.Header, subject, body string) {
	t.Helper()
	header, subject, body, err := l.Read()
	if err != nil {
		t.Fatalf("%v in %q", err, l.Text)
	}
	return header, subject, body
}
