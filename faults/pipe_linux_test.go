package faults

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

// fullPipe returns the end of a pipe that takes no more, since nobody reads it.
func fullPipe(t *testing.T) (from, to *os.File) {
	t.Helper()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close(); to.Close() })
	if err := to.SetWriteDeadline(time.Now().Add(time.Second)); err != nil { //nolint:forbidigo // of a pipe of this host
		t.Fatal(err)
	}
	for err == nil {
		_, err = to.Write(make([]byte, 4096))
	}
	return from, to
}

// Nobody reads the standard error of a daemon and of a worker, or its reader has gone. Work goes on, the daemon says what happens to
// its log wherever one looks, and SIGTERM ends both.
//
// The class: an output whose reader may stop is never in the way of work. Looked at: the log and what goes to standard error beside it
// (this test), --echo (bounded in the guardian), server-sent events (a deadline for each), standard input of commands that notify (a
// goroutine writes it, until the command's deadline), spans (the program's own provider; ours ends them, and waits for nobody).
func TestNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	binary := build(t)
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, gone := range []bool{false, true} {
			if gone && db.Dialect.Name != "sqlite" {
				continue // as the database has no part in it
			}
			name := map[bool]string{false: "stopped", true: "gone"}[gone]
			dir := filepath.Join(t.TempDir(), name)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			r := &rig{t: t, db: db, binary: binary, dir: dir, mark: "FAULTS_MARK=" + dir, lease: 30 * time.Second, poll: 200 * time.Millisecond, grace: time.Second}
			begun := filepath.Join(dir, "begun")
			if err := scheduler.Add(t.Context(), db.DB, scheduler.Schedule{
				Name: "talks-" + name, Spec: "@every 1s", Command: "echo begun >> " + begun + "; head -c 400000 /dev/zero | tr '\\0' a | fold -w 4000",
			}); err != nil {
				t.Fatal(err)
			}
			silent := func(args ...string) *daemon {
				from, to := fullPipe(t)
				if gone {
					from.Close()
				}
				d := &daemon{rig: r, node: args[0], done: make(chan struct{})}
				d.cmd = exec.CommandContext(context.Background(), binary, args...)
				d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "DBCRON_DATABASE_URL=" + db.URL}
				d.cmd.Stderr = to
				if err := d.cmd.Start(); err != nil {
					t.Fatal(err)
				}
				go func() { _ = d.cmd.Wait(); close(d.done) }()
				t.Cleanup(func() { _ = d.cmd.Process.Kill(); <-d.done })
				return d
			}
			admin := freeAddress(t)
			served := silent("serve", "--echo", "--listen", "off", "--admin-listen", admin, "--grace", "1s", "--poll", "200ms")
			worker := silent("worker", "exec", "--queue", "talks-"+name, "--", "sh", "-c", "echo job >> "+begun+"; exit 3")
			c, err := queue.New(db.DB, queue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, err := c.Enqueue(t.Context(), queue.Job{Queue: "talks-" + name, Kind: "any"}); err != nil {
					t.Fatal(err)
				}
			}
			r.eventually("schedules run", patience, func() bool { return linesOf(t, begun, "begun") >= 3 })
			r.eventually("jobs are done", patience, func() bool { return linesOf(t, begun, "job") >= 3 })
			said := map[bool]string{false: "nobody has read its log", true: "its log cannot be written"}[gone]
			r.eventually("readyz says it", patience, func() bool {
				text := get(t, "http://"+admin+"/readyz")
				return strings.HasPrefix(text, "ok\n") && strings.Contains(text, said)
			})
			r.eventually("a metric counts lines", patience, func() bool {
				for line := range strings.Lines(get(t, "http://"+admin+"/metrics")) {
					if rest, ok := strings.CutPrefix(line, "dbcron_log_lines_dropped_total "); ok {
						return strings.TrimSpace(rest) != "0"
					}
				}
				return false
			})
			r.eventually("doctor says it", patience, func() bool {
				now, err := scheduler.Clock(t.Context(), db.DB)
				if err != nil {
					return false
				}
				all, _, err := health.OfProcesses(t.Context(), db.DB, now)
				for i := range all {
					if err == nil && strings.Contains(all[i].Why, said) {
						return true
					}
				}
				return false
			})
			for _, d := range []*daemon{served, worker} {
				d.signal(syscall.SIGTERM)
			}
			for _, d := range []*daemon{served, worker} {
				select {
				case <-d.done:
				case <-time.After(patience):
					t.Errorf("%s: did not end after SIGTERM", d.node)
				}
			}
			if err := scheduler.Delete(t.Context(), db.DB, "talks-"+name); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// get returns the body of an answer, or "".
func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// freeAddress returns an address of this host that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	at, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	return at.Addr().String()
}
