package browser

import (
	"bufio"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

var demoTime = flag.Duration("demo", 3*time.Minute, "how long the demo has lived when its pictures are taken")

// Pictures of dbcron demo, for the README and docs.
func TestDemoPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("no folder is given: -pictures")
	}
	must(t, os.MkdirAll(*pictures, 0o755))
	program := filepath.Join(t.TempDir(), "dbcron")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "./cmd/dbcron")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	demo := exec.Command(program, "demo", "--listen", "127.0.0.1:0")
	out, err := demo.StdoutPipe()
	must(t, err)
	must(t, demo.Start())
	t.Cleanup(func() { // not a defer: the browsers, which refresh their pages, end first
		must(t, demo.Process.Signal(syscall.SIGTERM))
		_ = demo.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(line)
	time.Sleep(*demoTime) // nothing to wait for: the shop needs the time
	for _, l := range looks {
		b := open(t, address)
		b.as(l)
		for name, path := range map[string]string{
			"overview": "", "queues": "queues", "queue": "queue?name=mail", "jobs": "jobs?queue=mail&state=dead",
			"errors": "errors", "schedules": "schedules", "schedule": "schedule?name=prices-import",
			"runs": "runs", "runs-failed": "runs?state=failed", "locks": "locks", "lock": "lock?name=stock-count",
			"daemons": "daemons", "audit": "audit",
		} {
			if wanted(name) {
				b.picture(path, "demo-"+name+"-"+l.name)
			}
		}
	}
}
