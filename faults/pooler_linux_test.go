package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// bouncer starts a PgBouncer that gives each transaction any of five sessions, and returns the
// database's URL through it.
func bouncer(t *testing.T, databaseURL string) string {
	t.Helper()
	program := tool(t, "pgbouncer", "pgbouncer")
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	dir := t.TempDir()
	port := dbtest.FreePort(t)
	settings := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 1000
`, u.Hostname(), u.Port(), u.User.Username(), password, port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if me, err := user.Current(); err == nil && me.Uid == "0" { // PgBouncer refuses to run as root
		args = []string{"-u", "nobody", file}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if strings.Contains(said.String(), "cancel request") {
			t.Error("a statement was to be cancelled through the pooler, which can crash it")
		}
		if t.Failed() {
			t.Logf("pgbouncer: %v: %s", cmd.ProcessState, &said)
		}
	})
	u.Host = net.JoinHostPort("127.0.0.1", port)
	for {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", u.Host)
		if err == nil {
			_ = c.Close()
			return u.String()
		}
		select {
		case <-ended:
			t.Fatalf("pgbouncer has ended: %s", &said)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Behind a transaction pooler everything works with an ordinary URL: migrations, eight at once;
// a daemon's schedules; jobs, in order and in callers' transactions; locks and elections.
func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	binary := build(t)
	dbtest.One(t, postgres.Dialect, func(t *testing.T, direct *dbtest.DB) {
		u := bouncer(t, direct.URL)
		dbcron := func(args ...string) string {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), binary, args...)
			cmd.Env = append(os.Environ(), "DBCRON_DATABASE_URL="+u)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("dbcron %s: %v: %s", strings.Join(args, " "), err, out)
			}
			return string(out)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { dbcron("migrate", "up") })
		}
		all.Wait()
		if got := direct.List(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = "+
			"(SELECT oid FROM pg_database WHERE datname = current_database())", nil); got[0] != "0" {
			t.Errorf("%s locks have been left behind", got[0])
		}
		if out := dbcron("doctor"); !strings.Contains(out, "a pooler is between") {
			t.Errorf("doctor says: %s", out)
		}
		for _, mode := range []string{"", "&default_query_exec_mode=exec"} { // as people set it for a pooler
			statementIsCutOff(t, dbtest.Open(t, u+mode, dialect.Options{}))
		}
		db := dbtest.Open(t, u, dialect.Options{})
		t.Run("schedules", func(t *testing.T) { t.Parallel(); schedulesRun(t, db, binary) })
		t.Run("jobs", func(t *testing.T) { t.Parallel(); jobsAreDone(t, db) })
		t.Run("locks", func(t *testing.T) { t.Parallel(); locksExclude(t, db) })
	})
}

// statementIsCutOff has a context end during a statement: bouncer notices if that is to be cancelled.
func statementIsCutOff(t *testing.T, db *dbtest.DB) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := db.Pool().ExecContext(ctx, "SELECT pg_sleep(3600) AS cut_off")
		ended <- err
	}()
	dbtest.Eventually(t, "the statement is under way", func() bool {
		return len(db.List(t, "SELECT pid FROM pg_stat_activity WHERE query LIKE '%AS cut_off' AND state = 'active' AND pid <> pg_backend_pid()", nil)) > 0
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the statement has ended with %v", err)
	}
}

func schedulesRun(t *testing.T, db *dbtest.DB, binary string) {
	dir := t.TempDir()
	r := &rig{t: t, db: db, binary: binary, dir: dir, lease: 5 * time.Second, grace: 5 * time.Second}
	ran, crontab := filepath.Join(dir, "ran"), filepath.Join(dir, "crontab")
	if err := os.WriteFile(crontab, []byte("@every 1s echo ran >>"+ran+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--crontab", crontab, "--poll", "1s", "--listen", "off"}
	one, other := r.serve(binary, "one", args...), r.serve(binary, "other", args...)
	r.eventually("the command has run three times", time.Minute, func() bool {
		text, _ := os.ReadFile(ran)
		return strings.Count(string(text), "ran") >= 3
	})
	one.stop()
	other.stop()
	if got := db.List(t, "SELECT due_at FROM {prefix}run GROUP BY schedule, due_at HAVING COUNT(*) > 1", nil); len(got) > 0 {
		t.Errorf("slots %v ran twice", got)
	}
	for _, d := range []*daemon{one, other} {
		if log := d.log.String(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, `"level":"WARN"`) {
			t.Error(log)
		}
	}
}

func jobsAreDone(t *testing.T, db *dbtest.DB) {
	c, err := queue.New(db.DB, queue.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adminOf(c).Edit(t.Context(), "work", func(q *admin.Queue) { q.RetryDelay = 10 * time.Millisecond }); err != nil {
		t.Fatal(err)
	}
	const keys, each = 5, 40
	var mu sync.Mutex
	did := map[string][]string{}
	do := func(_ context.Context, d *queue.Delivery) error {
		if d.Kind == "flaky" && d.Attempt == 1 {
			return fmt.Errorf("the first attempt fails")
		}
		mu.Lock()
		defer mu.Unlock()
		did[d.Key] = append(did[d.Key], string(d.Payload))
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for range 2 {
		w, err := c.Worker(queue.WorkerOptions{Queues: []string{"work"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.HandleOthers(do); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	var want []string
	for n := range each {
		want = append(want, fmt.Sprint(n))
		for k := range keys {
			job := queue.Job{Queue: "work", Kind: []string{"plain", "flaky"}[n%2], Key: fmt.Sprint("key ", k), Payload: []byte(fmt.Sprint(n))}
			var err error
			switch k {
			case 0:
				_, err = c.Enqueue(t.Context(), job)
			case 1:
				_, err = c.EnqueueMany(t.Context(), []queue.Job{job})
			default:
				job.Unique = fmt.Sprint(k, " ", n)
				tx, e := db.Pool().BeginTx(t.Context(), nil)
				if e != nil {
					t.Fatal(e)
				}
				_, wake, e := c.EnqueueTx(t.Context(), tx, job)
				if e != nil {
					t.Fatal(e)
				}
				if err = tx.Commit(); err == nil {
					wake()
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for {
		n, err := adminOf(c).Count(t.Context(), "work", 1000)
		if err != nil {
			t.Fatal(err)
		}
		if n.Ready+n.Delayed+n.Running == 0 {
			break
		}
		if wait(t.Context(), 20*time.Millisecond) != nil {
			t.Fatalf("jobs are left: %+v", n)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for k := range keys {
		if got := did[fmt.Sprint("key ", k)]; !slices.Equal(got, want) {
			t.Errorf("key %d: done are %v", k, got)
		}
	}
}

func locksExclude(t *testing.T, db *dbtest.DB) {
	l, err := lock.New(db.DB, lock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, fence := 0, int64(0) // only the lock guards them
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				lease, err := l.Acquire(t.Context(), "counter")
				if err != nil {
					t.Error(err)
					return
				}
				if lease.Fence() <= fence {
					t.Errorf("fence %d came after %d", lease.Fence(), fence)
				}
				n, fence = n+1, lease.Fence()
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n != 20 {
		t.Errorf("counted %d of 20", n)
	}
}
