package httpapi

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Without a token only addresses of this host alone are bound.
func TestListen(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		listen := func(address string) error {
			at, err := Listen(t.Context(), NewTokens(db.DB), address)
			if err == nil {
				must(t, at.Close())
			}
			return err
		}
		for _, address := range []string{"127.0.0.1:0", "localhost:0", "127.9.9.9:0"} {
			must(t, listen(address))
		}
		for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
			if err := listen(address); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "dbcron token create") {
				t.Errorf("%s without a token: %v", address, err)
			}
		}
		for _, address := range []string{"", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"} {
			if err := listen(address); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", address, err)
			}
		}
		_, err := NewTokens(db.DB).Create(t.Context(), "x", []Scope{ScopeRead}, 0)
		must(t, err)
		must(t, listen(":0"))
		taken, err := Listen(t.Context(), NewTokens(db.DB), "127.0.0.1:0")
		must(t, err)
		defer taken.Close()
		if err := listen(taken.Addr().String()); err == nil {
			t.Error("an address was bound twice")
		}
	})
}

// run serves a handler until stop is called, which waits for the end.
func run(t *testing.T, s *Server) (address string, stop func()) {
	t.Helper()
	at, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, at) }()
	stopped := false
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		select {
		case err := <-ended:
			must(t, err)
		case <-time.After(longWait):
			t.Fatal("it does not end")
		}
	}
	t.Cleanup(stop)
	return at.Addr().String(), stop
}

// Requests under way at the end are answered, and no further ones are taken.
func TestDrain(t *testing.T) {
	begun, go1 := make(chan struct{}), make(chan struct{})
	address, stop := run(t, &Server{Grace: longWait, Logger: quiet(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-go1
		if r.Context().Err() == nil {
			_, _ = io.WriteString(w, "whole")
		}
	})})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	must(t, err)
	<-begun
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	eventually(t, "it takes no more", func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(go1)
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer got.Body.Close()
	if text, err := io.ReadAll(got.Body); string(text) != "whole" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	<-ended
}

// Requests that do not end in the time they have are broken off.
func TestDrainEnds(t *testing.T) {
	begun, over := make(chan struct{}), make(chan struct{})
	address, stop := run(t, &Server{
		Grace: time.Millisecond, Logger: quiet(),
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
			close(over)
		}),
	})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	must(t, err)
	<-begun
	stop()
	<-over
}

// certificate writes a certificate for a name, and its key.
func certificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

// A certificate is read again when it changes; while its files are invalid, the previous one
// stays in use.
func TestCertificate(t *testing.T) {
	dir, logs := t.TempDir(), &logbook{}
	cert, key := certificate(t, dir, "first.example")
	address, stop := run(t, &Server{
		Cert: cert, Key: key, Logger: slog.New(slog.NewTextHandler(logs, nil)),
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	})
	name := func() string {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the name is looked at here
		conn, err := d.DialContext(t.Context(), "tcp", address)
		must(t, err)
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	if got := name(); got != "first.example" {
		t.Errorf("it has %s", got)
	}
	must(t, os.WriteFile(cert, []byte("nonsense"), 0o600))
	for range 3 {
		if got := name(); got != "first.example" {
			t.Errorf("while it is wrong: %s", got)
		}
	}
	if n := strings.Count(logs.String(), "stays as it was"); n != 1 {
		t.Errorf("it is told %d times: %s", n, logs)
	}
	certificate(t, dir, "the.second.example") // of another length, should it be the same moment
	eventually(t, "it is read again", func() bool { return name() == "the.second.example" })
	stop()
	if err := (&Server{Cert: "none", Key: key, Logger: quiet()}).Serve(t.Context(), listener(t)); err == nil {
		t.Error("it serves without its certificate")
	}
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	at, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	return at
}

// A daemon is alive while it answers, and ready while its database answers and it is not
// stopping.
func TestHealth(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		stopping := make(chan struct{})
		far := dbtest.Open(t, db.URL, dialect.Options(db.Options()))
		address, _ := run(t, &Server{Handler: &Health{DB: far.DB, Stopping: stopping}, Logger: quiet(), Grace: time.Second})
		client := &http.Client{}
		defer client.CloseIdleConnections()
		want := func(method, path string, status int, text string) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
			must(t, err)
			got, err := client.Do(r)
			must(t, err)
			defer got.Body.Close()
			if body, _ := io.ReadAll(got.Body); got.StatusCode != status || string(body) != text {
				t.Errorf("%s %s: %d %q", method, path, got.StatusCode, body)
			}
		}
		want("GET", "/livez", 200, "ok\n")
		want("GET", "/readyz", 200, "ok\n")
		want("HEAD", "/readyz", 200, "")
		want("POST", "/readyz", 405, "GET or HEAD\n")
		want("GET", "/", 404, "there are /livez and /readyz\n")
		must(t, far.Pool().Close())
		want("GET", "/readyz", 503, "the database does not answer\n")
		want("GET", "/livez", 200, "ok\n")
		close(stopping)
		want("GET", "/readyz", 503, "stopping\n")
		want("GET", "/livez", 200, "ok\n")
	})
}

// A daemon whose server takes no writes can do none of its work.
func TestReadyOnAServerThatTakesNoWrites(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		for url, want := range map[string]string{
			db.URL: "ok\n",
			db.URL + "&default_transaction_read_only=on": "the database takes no writes: transaction_read_only = on\n",
		} {
			far, err := engines.Connect(t.Context(), url, dialect.Options(db.Options()))
			must(t, err)
			defer far.Close()
			w := httptest.NewRecorder()
			(&Health{DB: far}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", http.NoBody))
			if got := w.Body.String(); got != want || (w.Code == 200) != (want == "ok\n") {
				t.Errorf("%d %q, want %q", w.Code, got, want)
			}
		}
	})
}

// A sqlState is an error as PostgreSQL's drivers have it.
type sqlState string

func (s sqlState) Error() string    { return "SQLSTATE " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

// After a failover the database answers later, and so does a busy one; nothing is wrong with the request. The class: an error of
// the server that says nothing about the statement is no internal error, on each engine.
func TestTroubleOfTheDatabaseIs503(t *testing.T) {
	t.Parallel()
	a := &API{log: quiet(), db: &dialect.DB{Session: sqlrun.Session{Dialect: postgres.Dialect}}}
	for _, err := range []error{
		driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, dialect.ErrReadOnly, sqlconn.ErrCut,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, sqlState("57P01"), sqlState("25006"), sqlState("08006"),
		sqlState("25P03"), sqlState("25P04"), sqlState("57014"), sqlState("55P03"), sqlState("53200"), sqlState("40P01"),
		sqlState("58030"),
	} {
		if p := a.problemOf(t.Context(), &operation{}, fmt.Errorf("queue.enqueue: %w", err)); p.Status != http.StatusServiceUnavailable {
			t.Errorf("%v: %d", err, p.Status)
		}
	}
	if p := a.problemOf(t.Context(), &operation{}, sqlState("53100")); p.Status != http.StatusInsufficientStorage {
		t.Errorf("a full disk: %d", p.Status)
	}
	for _, err := range []error{errors.New("x"), sqlState("42601"), sqlState("25P02"), sqlState("23514"), sqlState("XX000")} {
		if p := a.problemOf(t.Context(), &operation{}, err); p.Status != http.StatusInternalServerError {
			t.Errorf("%v: %d", err, p.Status)
		}
	}
	a.db = &dialect.DB{Session: sqlrun.Session{Dialect: mysql.Dialect}}
	for number, want := range map[uint16]int{1205: 503, 1213: 503, 1040: 503, 3024: 503, 1114: 507, 1021: 507, 1317: 503, 1053: 503, 1064: 500, 1048: 500} {
		if p := a.problemOf(t.Context(), &operation{}, fmt.Errorf("queue.enqueue: %w", &mysqldriver.MySQLError{Number: number})); p.Status != want {
			t.Errorf("%d: %d, want %d", number, p.Status, want)
		}
	}
}

// At a loopback address the metrics are for who names this host: a page that gives its own name
// to this host is not told them. Whether the daemon is alive anybody may know.
func TestMetricsHost(t *testing.T) {
	t.Parallel()
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "jobs 5") })
	address, _ := run(t, &Server{Handler: &Health{Metrics: metrics}, Logger: quiet(), Grace: time.Second})
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	own, err := os.Hostname()
	must(t, err)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	get := func(path, host string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+path, http.NoBody)
		must(t, err)
		r.Host = host
		got, err := client.Do(r)
		must(t, err)
		defer got.Body.Close()
		if text, err := io.ReadAll(got.Body); err != nil || (got.StatusCode == 200) != (string(text) == "jobs 5" || path == "/livez") {
			t.Errorf("%s of %s: %d %s, %v", path, host, got.StatusCode, text, err)
		}
		return got.StatusCode
	}
	for _, host := range []string{address, "localhost:" + port, "LOCALHOST", "127.0.0.1", "[::1]:" + port, own, own + ":" + port} {
		if got := get("/metrics", host); got != 200 {
			t.Errorf("for %s: %d", host, got)
		}
	}
	for _, host := range []string{"evil.example", "evil.example:" + port, "localhost.evil.example", "10.0.0.1"} {
		if got := get("/metrics", host); got != 403 {
			t.Errorf("for %s: %d", host, got)
		}
		if got := get("/livez", host); got != 200 {
			t.Errorf("alive for %s: %d", host, got)
		}
	}
}

// A body that does not come whole is no server's fault.
func TestBrokenBodies(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		for _, body := range []string{
			"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
			"Content-Length: 1000\r\n\r\n{\"kind\"",
		} {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
			must(t, err)
			_, err = io.WriteString(conn, "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+body)
			must(t, err)
			must(t, conn.(*net.TCPConn).CloseWrite())
			got, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			if got.StatusCode != 400 {
				t.Errorf("%q: %d", body, got.StatusCode)
			}
			got.Body.Close()
			conn.Close()
		}
		if n := rows(t, db, "job"); n != 0 {
			t.Errorf("%d jobs", n)
		}
	})
}
