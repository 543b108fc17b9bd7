package faults

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// The volume of a SQLite database is full while a daemon runs. Each command, the API and doctor call it that, doctor does not take the
// daemon for dead, and all goes on when there is room.
//
// The class: an error of the whole database has its own words and status wherever it can surface. Looked at: 53100 of PostgreSQL, 1021,
// 1114 and "No space left on device" of MySQL and MariaDB (TestNoSpace), connections used up (Full), a server that
// takes no writes (ReadOnly).
func TestAFullVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	volume := filepath.Join(dir, "volume")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	switch err := syscall.Mount("tmpfs", volume, "tmpfs", 0, "size=8m"); {
	case errors.Is(err, syscall.EPERM) && os.Getuid() != 0:
		t.Skip("only root can mount a small volume")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(volume, syscall.MNT_DETACH) })
	binary, admin := build(t), freeAddress(t)
	db := &dbtest.DB{URL: "sqlite:" + filepath.Join(volume, "work.db")}
	r := &rig{t: t, db: db, binary: binary, dir: dir, mark: "FAULTS_MARK=" + dir, lease: 5 * time.Second, poll: 200 * time.Millisecond, grace: time.Second}
	dbcron := func(args ...string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "DBCRON_DATABASE_URL=" + db.URL}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	well := func(args ...string) {
		t.Helper()
		if out, err := dbcron(args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	begun := filepath.Join(dir, "begun")
	well("migrate", "up")
	well("schedule", "add", "often", "--spec", "@every 1s", "--", "echo run >> "+begun)
	d := r.serve(binary, "one", "--poll", "200ms", "--listen", admin)
	r.eventually("it runs", 20*time.Second, func() bool { return linesOf(t, begun, "run") > 0 })

	filler := filepath.Join(volume, "filler")
	fill, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(bytes.Repeat([]byte("a"), 4096))
	}
	fill.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	const payload = 200_000
	said := ""
	r.eventually("a command says that the disk is full", 20*time.Second, func() bool {
		out, err := dbcron("job", "enqueue", "any", `"`+strings.Repeat("a", 100_000)+`"`)
		said = out
		return err != nil && strings.Contains(out, "the disk of the database is full: make room there")
	})
	r.eventually("the API says it", 20*time.Second, func() bool {
		status, text := post(t, "http://"+admin+"/api/v1/jobs", `{"kind": "any", "payload": "`+strings.Repeat("a", payload)+`"}`)
		said = text
		return status == http.StatusInsufficientStorage && strings.Contains(text, "the disk of the database is full")
	})
	r.eventually("doctor says it, and nothing of daemons", 20*time.Second, func() bool {
		out, err := dbcron("doctor")
		said = out
		return err != nil && strings.Contains(out, "the disk of the database is full") && !strings.Contains(out, "aemon is at work") &&
			!strings.Contains(out, "ok       writable")
	})
	if t.Failed() {
		t.Logf("%.3000s", said)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	before := linesOf(t, begun, "run")
	r.eventually("it runs again", 20*time.Second, func() bool { return linesOf(t, begun, "run") > before })
	r.eventually("doctor is content", 20*time.Second, func() bool {
		out, err := dbcron("doctor")
		said = out
		return err == nil && !strings.Contains(out, "full")
	})
	if t.Failed() {
		t.Logf("%.3000s", said)
	}
	d.stop()
}

// post sends JSON, and returns the status and the text of the answer.
func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}
