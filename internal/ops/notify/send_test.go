package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi/push"
)

type ctx = context.Context

// Nothing in a name or an error becomes a line of a mail's header, or ends the mail.
func TestMailHeadersCannotBeInjected(t *testing.T) {
	server := newMailServer(t, nil, "")
	s, err := Mail{Server: server.URL()}.filled()
	must(t, err)
	m := Message{Target: "mailto:ops@example.org", At: dbtest.Start.UnixMicro()}
	m.addTrouble(Trouble{
		Subject: "schedule", Name: "a\r\nBcc: eve@example.org\r\n\r\nhello", Problem: "failed", Times: 1,
		Detail: "Grüße\r\n.\r\nMAIL FROM:<eve@example.org>", output: ".\r\nQUIT\r\n",
	})
	must(t, s.send(t.Context(), &m, "id"))
	letters := server.Letters()
	if len(letters) != 1 {
		t.Fatalf("%d letters", len(letters))
	}
	header, subject, body := read(t, letters[0])
	if header.Get("Bcc") != "" || len(header) != 9 || strings.ContainsAny(subject, "\r\n") || !strings.Contains(subject, "Grüße") {
		t.Errorf("header %q, subject %q", header, subject)
	}
	if !strings.Contains(body, "QUIT") {
		t.Errorf("body %q", body)
	}
}

// Of a webhook's URL only the server may be seen: not in lists and logs, and not in a message, which everybody may read who
// may read jobs. Nor does an error name an address. The class: whatever is shown to people who may not set it.
func TestURLsOfWebhooksAreSecret(t *testing.T) {
	for target, want := range map[string]string{
		"https://example.org/in/KEY": "https://example.org/…", "https://example.org?key=KEY": "https://example.org/…",
		"https://example.org/?KEY": "https://example.org/…", "https://example.org#KEY": "https://example.org/…",
		"https://example.org/": "https://example.org", "https://example.org": "https://example.org",
		"mailto:ada@example.org": "mailto:ada@example.org", "command:0123": "command:0123",
	} {
		if got := Shown(target); got != want {
			t.Errorf("%s is shown as %s, want %s", target, got, want)
		}
	}
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		asked := make(chan string, 1)
		web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.String() }))
		defer web.Close()
		hosts, err := push.ParseHosts([]string{"127.0.0.1"})
		must(t, err)
		add(t, db, "own", "false", web.URL+"/hook?key=KEY")
		ask(t, db, "own")
		runAll(t, db)
		n := notifier(t, db, Options{Hosts: hosts})
		must(t, n.gather(t.Context(), true))
		all := messages(t, db)
		if len(all) != 1 || strings.Contains(fmt.Sprintf("%+v", all), "KEY") {
			t.Fatalf("the messages are %+v", all)
		}
		must(t, n.dereference(t.Context(), &all[0]))
		must(t, n.deliver(t.Context(), &all[0], "id"))
		if got := <-asked; got != "/hook?key=KEY" {
			t.Errorf("%s was asked for", got)
		}
		db.Do(t, "DELETE FROM {prefix}notice_target WHERE target <> ''", nil)
		if err := n.dereference(t.Context(), &all[0]); err == nil || !strings.Contains(err.Error(), "notice_target") {
			t.Errorf("a target that is gone: %v", err)
		}
	})
}

func TestMailIsEncryptedAndSaysWhoSends(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	server := newMailServer(t, &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}, "ada\x00secret")
	url := strings.Replace(server.URL(), "smtp://", "smtp://ada@", 1)
	m := Message{Target: "mailto:ops@example.org", Test: true}
	for password, fine := range map[string]bool{"secret": true, "wrong": false} {
		s, err := Mail{Server: url, Password: password, roots: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}.filled()
		must(t, err)
		if err := s.send(t.Context(), &m, "id"); (err == nil) != fine {
			t.Errorf("with the password %q: %v", password, err)
		} else if err != nil && strings.Contains(err.Error(), password) {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	s, err := Mail{Server: url, Password: "secret"}.filled()
	must(t, err)
	if err := s.send(t.Context(), &m, "id"); err == nil {
		t.Error("a certificate that nobody knows was taken")
	}
	if n := len(server.Letters()); n != 1 {
		t.Errorf("%d letters", n)
	}
	for _, bad := range []string{"http://example.org", "smtp://", "smtp://ada:secret@example.org", "smtp://example.org/x"} {
		if _, err := (Mail{Server: bad}).filled(); err == nil || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	m := Message{Target: "mailto:ops@example.org"}
	m.addTrouble(Trouble{
		Subject: "schedule", Name: "a", Problem: "failed", Times: 1,
		output: excerpt("head\n" + strings.Repeat("ä", 1<<20) + "\ntail"),
	})
	if text := m.Text(); len(text) > maxOutput+1000 || !strings.Contains(text, "head") || !strings.Contains(text, "tail") ||
		!strings.Contains(text, "bytes are left out") {
		t.Errorf("%d bytes", len(text))
	}
}

func TestWebhooksAreSigned(t *testing.T) {
	dbtest.SkipBare(t, "needs no database")
	db := dbtest.Fresh(t, "sqlite")
	secret := push.NewSecret()
	wh, err := standardwebhooks.NewWebhook(secret)
	must(t, err)
	answer, ids := http.StatusInternalServerError, []string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = wh.Verify(body, r.Header)
		}
		if err != nil || !strings.Contains(string(body), `"text":"[dbcron] a test message"`) {
			t.Errorf("%v: %s", err, body)
		}
		ids = append(ids, r.Header.Get("webhook-id"))
		w.WriteHeader(answer)
	}))
	defer server.Close()
	hosts, err := push.ParseHosts([]string{"127.0.0.1"})
	must(t, err)
	n := notifier(t, db, Options{Secret: secret, Hosts: hosts})
	target := server.URL + "/secret-path"
	err = n.Test(t.Context(), target)
	if err == nil || !strings.Contains(err.Error(), "500") || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("answered 500: %v", err)
	}
	answer = http.StatusNoContent
	must(t, n.Test(t.Context(), target))
	if len(ids) != 2 {
		t.Errorf("ids %q", ids)
	}
	n = notifier(t, db, Options{Secret: secret})
	if err := n.Test(t.Context(), target); err == nil || len(ids) != 2 || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("to this host: %v", err)
	}
}

func TestCommands(t *testing.T) {
	dbtest.SkipBare(t, "needs no database")
	db := dbtest.Fresh(t, "sqlite")
	file := filepath.Join(t.TempDir(), "told")
	command := `command:echo "$DBCRON_NOTIFY_SUBJECT" > ` + file + `; cat >> ` + file
	n := notifier(t, db, Options{Targets: []string{command, "command:echo no room; exit 9"}, Env: []string{"PATH=/usr/bin:/bin"}})
	must(t, n.Test(t.Context(), command))
	if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "[dbcron] a test message\nThis is a test message") {
		t.Errorf("%v: %q", err, text)
	}
	if err := n.Test(t.Context(), "command:echo no room; exit 9"); err == nil || !strings.Contains(err.Error(), "exit code 9: no room") {
		t.Error(err)
	}
	// Whoever can write a job into the queue cannot choose the command.
	m := Message{Target: "command:touch " + file + "2"}
	if err := n.deliver(t.Context(), &m, "id"); err == nil {
		t.Error("a command of the table was run")
	}
}
