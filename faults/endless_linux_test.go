package faults

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/notify"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// A babbler is a server that answers every connection with letters, without end.
type babbler struct {
	address string
	sent    atomic.Int64 // bytes that found room in the connection
}

// babble starts one, which begins each answer with a text. If it is slow, it sends a letter now and then.
func babble(t *testing.T, begin string, slow bool) *babbler {
	t.Helper()
	at, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &babbler{address: at.Addr().String()}
	t.Cleanup(func() { at.Close() })
	letters := []byte(strings.Repeat("a", 32<<10))
	if strings.HasPrefix(begin, "220-") {
		letters = []byte(strings.Repeat("220-aaaa\r\n", 3<<10))
	}
	go func() {
		for {
			conn, err := at.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				defer context.AfterFunc(t.Context(), func() { conn.Close() })()
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				text := []byte(begin)
				for {
					n, err := conn.Write(text)
					b.sent.Add(int64(n))
					if err != nil {
						return
					}
					if text = letters; slow {
						text = letters[:1]
						pace.Sleep(t.Context(), 20*time.Millisecond)
					}
				}
			}()
		}
	}()
	return b
}

// Whatever dbcron calls or reads may answer without end. Each such call has a bound of bytes, and one of time, and this is the list of them:
//
//	what is called              bytes                       time
//	request of a schedule       64 KiB headers, 256 MiB     its timeout, or 5m
//	proxy of such a request     64 KiB headers              the same
//	endpoint of a queue         64 KiB headers, 64 KiB      its timeout (of batches: httpapi/push, longestAnswers)
//	webhook                     64 KiB headers, 300 bytes   1m
//	mail server                 256 KiB                     1m
//	command that notifies       4 KiB are kept              1m
//	daemon, for --url           64 KiB headers, 256 MiB     1m, six times at most; a command reads no stream of events
//	proxy of such a call        64 KiB headers              the same
//	database                    1 GiB, 16 MiB (a message)   10s for a connection, --connect-timeout for all; then a statement's
//	name server                 64 KiB, by Go's resolver    that of the call (the dialer's in webhooks, endpoints, mail)
//
//	what is read                bytes                       time
//	file of schedules           16 MiB                      10s, if it is a pipe (internal/smallfile; testdata/cli/unfit.txtar)
//	--config                    1 MiB                       the same
//	URL, secret, password       64 KiB                      the same
//	certificate and its key     1 MiB                       the same
//	files of PostgreSQL's URL   1 MiB                       no pipe, no device (dialect/postgres/files_test.go); MySQL's URLs name none
//	file of SQLite              what SQLite reads of it     a pipe or a device is an I/O error
//	/proc                       4 KiB a process             the kernel's; a folder of at most pid_max
//	standard input              a payload's bound, a line's whoever types, or writes the pipe
//
// Others, such as TestAnswersWithoutEnd, walk through those that a test can stand in for. os.ReadFile is for the linter to refuse.

// calls are what dbcron calls at addresses that others have chosen. Each returns when the call is over, and fails the test if it went well.
// Calls of a server that is slow are given up within a time.
func calls(t *testing.T, db *dbtest.DB) []outCall {
	hosts, err := push.ParseHosts([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	notifies := func(target, server string, within time.Duration) {
		n, err := notify.New(db.DB, notify.Options{
			Targets: []string{target}, Hosts: hosts, Logger: quiet, Dir: t.TempDir(), Mail: notify.Mail{Server: server},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		t.Log(n.Test(ctx, target))
	}
	connects := func(scheme string) func(string, string, time.Duration) {
		return func(at, name string, within time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, host, _ := strings.Cut(at, "://")
			opened, err := engines.Open(ctx, scheme+"://user@"+host+"/app", dialect.Options{})
			if err == nil {
				t.Errorf("%s: it is a database", name)
				opened.Close()
			}
		}
	}
	return []outCall{
		{"schedule", 256 << 20, func(at, name string, within time.Duration) {
			if err := scheduler.Add(t.Context(), db.DB, scheduler.Schedule{
				Name: name, Spec: "@every 24h", Kind: "http", Command: "GET " + at + "/",
				Policy: scheduler.Policy{FirstRun: "now", Timeout: within},
			}); err != nil {
				t.Fatal(err)
			}
			s, err := scheduler.New(db.DB, scheduler.Options{Logger: quiet})
			if err == nil {
				err = s.RunOnce(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			runs, err := scheduler.History(t.Context(), db.DB, name, 10)
			if err != nil || len(runs) != 1 || runs[0].State == "ok" || runs[0].State == "running" {
				t.Errorf("%s: %v, %v", name, runs, err)
			}
		}},
		{"endpoint", 64 << 10, func(at, name string, within time.Duration) {
			q, err := queue.New(db.DB, queue.Options{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := adminOf(q).Edit(t.Context(), name, func(*admin.Queue) {}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := push.NewEndpoints(db.DB).Edit(t.Context(), name, func(e *push.Endpoint) {
				e.URL, e.Timeout = at+"/", within
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := q.Enqueue(t.Context(), queue.Job{Queue: name, Kind: "any", MaxAttempts: 1}); err != nil {
				t.Fatal(err)
			}
			d, err := push.New(db.DB, push.Options{Hosts: hosts, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			for left := 1; left > 0; pace.Sleep(ctx, 50*time.Millisecond) {
				db.Scan(t, `SELECT (SELECT COUNT(*) FROM {prefix}job) + (SELECT COUNT(*) FROM {prefix}job_running) +
					(SELECT COUNT(*) FROM {prefix}job_delayed)`, nil, &left)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}},
		{"webhook", 64 << 10, func(at, _ string, within time.Duration) { notifies(at+"/", "", within) }},
		{"mail", 256 << 10, func(at, _ string, within time.Duration) {
			notifies("mailto:ops@example.org", "smtp"+strings.TrimPrefix(at, "http"), within)
		}},
		{"daemon", 1 << 20, func(at, name string, within time.Duration) {
			c, err := client.New(at, client.Options{MaxAnswer: 1 << 20, Timeout: within, Tries: 1})
			if err == nil {
				err = c.Do(t.Context(), client.Request{Method: "GET", Path: "/queues"}, &struct{}{})
			}
			if err == nil {
				t.Errorf("%s: there was an answer", name)
			}
			if err := c.Do(t.Context(), client.Request{Method: "GET", Path: "/queues"}, nil); err == nil {
				t.Errorf("%s: there was an answer that nobody needs", name)
			}
		}},
		{"postgres", 1 << 20, connects("postgres")},
		{"mysql", 16 << 20, connects("mysql")},
		{"command", 0, func(_, _ string, within time.Duration) {
			notifies("command:yes letters", "", min(within, 2*time.Second))
			notifies("command:head -c 50000000 /dev/zero | tr '\\0' a", "", time.Minute)
		}},
	}
}

// An outCall is a call to another server.
type outCall struct {
	name string
	most int64 // bytes that it may read
	call func(at, name string, within time.Duration)
}

func TestAnswersWithoutEnd(t *testing.T) {
	t.Parallel()
	const (
		headers = "HTTP/1.1 200 OK\r\nX-Letters: "
		body    = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n\""
		room    = 16 << 20 // of the connection, on both sides
	)
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, c := range calls(t, db) {
			for _, how := range []struct {
				name, begin string
				slow        bool
			}{{"headers", headers, false}, {"body", body, false}, {"lines", "220-", false}, {"slow", body, true}} {
				if c.name == "mail" && how.name == "body" || c.name != "mail" && how.name == "lines" {
					continue
				}
				within := time.Minute
				if how.slow {
					within = time.Second
				}
				if c.name == "mail" && how.name != "lines" {
					how.begin = "220 " // and a line without end
				}
				name := c.name + "-" + how.name
				b := babble(t, how.begin, how.slow)
				c.call("http://"+b.address, name, within)
				if sent := b.sent.Load(); sent == 0 && c.most > 0 || sent > 2*(c.most+room) {
					t.Errorf("%s: %d bytes were sent, of which %d may be read", name, sent, c.most)
				}
			}
		}
	})
}

// A name server, and a proxy, that never come to an end hold up none of the calls for longer than an answer may. The test is a process of
// its own, whose resolver and variables are those of nobody else.
func TestNamesAndProxiesWithoutEnd(t *testing.T) {
	t.Parallel()
	const mine = "FAULTS_BABBLES"
	if how := os.Getenv(mine); how != "" {
		walkNamesAndProxies(t, how)
		return
	}
	for _, how := range []string{"slow", "letters"} {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		c.Env = append(os.Environ(), mine+"="+how)
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "all calls have ended") {
			t.Errorf("%s: %v\n%s", how, err, out)
		}
	}
}

func walkNamesAndProxies(t *testing.T, how string) {
	names := babble(t, "", how == "slow")
	proxy := babble(t, "HTTP/1.1 200 OK\r\nX-Letters: ", how == "slow")
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", names.address)
	}}
	for _, name := range []string{"HTTPS_PROXY", "https_proxy"} {
		os.Setenv(name, "http://"+proxy.address) // which Go reads once
	}
	within := time.Second
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, c := range calls(t, db) {
			before := names.sent.Load()
			c.call("http://endless.example:8686", c.name+"-name", within)
			if c.name != "command" && names.sent.Load() == before {
				t.Errorf("%s has asked for no name", c.name)
			}
		}
		for _, c := range calls(t, db) {
			if c.name == "schedule" || c.name == "daemon" { // others use no proxy
				before := proxy.sent.Load()
				c.call("https://endless.example", c.name+"-proxy", within)
				if proxy.sent.Load() == before {
					t.Errorf("%s has not asked the proxy", c.name)
				}
			}
		}
		t.Log("all calls have ended")
	})
}
