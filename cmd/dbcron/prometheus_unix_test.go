//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// prometheusTool finds a program of Debian's package prometheus: without it only CI fails.
func prometheusTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("tools/test-deps installs it: %v", err)
		}
		t.Skipf("Debian's package prometheus has it: %v", err)
	}
	return path
}

// Prometheus accepts the examples, and the alerts fire as they should.
func TestPrometheusRules(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"},
		{"check", "rules", "dbcron.rules.yml"},
		{"test", "rules", "dbcron.test.yml"},
	} {
		check := exec.CommandContext(t.Context(), prometheusTool(t, "promtool"), args...)
		check.Dir = filepath.Join(root(t), "examples", "prometheus")
		if said, err := check.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
}

// A daemon has the metrics that the Grafana dashboard and the alerts ask for, and a Prometheus
// set up as in the example raises an alert about them.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	prometheus, folder := prometheusTool(t, "prometheus"), filepath.Join(root(t), "examples", "prometheus")
	d := beginDaemon(t)
	names := metricsOf(t, filepath.Join(folder, "dbcron.rules.yml"), filepath.Join(root(t), "examples", "grafana", "dbcron.json"))
	var missing []string
	waitFor(t, func() bool {
		text := fetch(t, "http://"+d.admin+"/metrics")
		missing = missing[:0]
		for name := range names {
			if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
				missing = append(missing, name)
			}
		}
		return len(missing) == 0
	}, func() string { return fmt.Sprintf("a daemon does not tell of %q", missing) })

	// The same set-up, but for the port, and faster.
	home := t.TempDir()
	config, err := os.ReadFile(filepath.Join(folder, "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range [][2]string{
		{"127.0.0.1:8687", d.admin},
		{"15s", "1s"},
		{"dbcron.rules.yml", filepath.Join(folder, "dbcron.rules.yml")},
	} {
		if !bytes.Contains(config, []byte(to[0])) {
			t.Fatalf("there is no %s in\n%s", to[0], config)
		}
		config = bytes.ReplaceAll(config, []byte(to[0]), []byte(to[1]))
	}
	if err := os.WriteFile(filepath.Join(home, "prometheus.yml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	at := "127.0.0.1:" + dbtest.FreePort(t)
	runUntilTheEnd(t, exec.CommandContext(t.Context(), prometheus, "--config.file="+filepath.Join(home, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(home, "data"), "--web.listen-address="+at, "--log.level=error"))
	var alerts string
	waitFor(t, func() bool {
		alerts = fetch(t, "http://"+at+"/api/v1/alerts")
		return strings.Contains(alerts, `"DbcronScheduleFailed"`) && strings.Contains(alerts, `"schedule":"fails"`) &&
			strings.Contains(alerts, `"state":"firing"`)
	}, func() string { return "there is no alert about the schedule that fails: " + alerts })
	if strings.Contains(alerts, `"DbcronDown"`) || strings.Contains(alerts, `"DbcronNoDaemon"`) {
		t.Errorf("the daemon is there, and the alerts are %s", alerts)
	}
	for title, expressions := range expressionsOf(t, filepath.Join(root(t), "examples", "grafana", "dbcron.json")) {
		for _, expression := range expressions {
			answers(t, at, title, expression)
		}
	}
}

// answers asks a Prometheus what a panel shows, until there is something. Lost processes, of which
// there is none, are only asked for.
func answers(t *testing.T, at, title, expression string) {
	t.Helper()
	expression = strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$queue", ".*").Replace(expression)
	var answer string
	waitFor(t, func() bool {
		answer = fetch(t, "http://"+at+"/api/v1/query?"+url.Values{"query": {expression}}.Encode())
		return strings.Contains(answer, `"metric"`) || strings.Contains(expression, `state="lost"`)
	}, func() string { return fmt.Sprintf("%s: %s: %s", title, expression, answer) })
}

// expressionsOf are what the panels of a dashboard for Grafana ask for, by title.
func expressionsOf(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	all, n := map[string][]string{}, 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all[p.Title], n = append(all[p.Title], target.Expr), n+1
		}
	}
	if n < 30 {
		t.Fatalf("only %d expressions were found in %s", n, file)
	}
	return all
}

// metricsOf are the metrics of dbcron, and of its connections, that files ask for.
func metricsOf(t *testing.T, files ...string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(file) == ".json" && !json.Valid(text) {
			t.Errorf("%s is not JSON", file)
		}
		for _, m := range regexp.MustCompile(`\b((?:dbcron|go_sql)_[a-z_]+)(?:[{\[) ]|\\n|"|$)`).FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
	}
	delete(names, "dbcron_node") // a table
	if len(names) < 25 {
		t.Fatalf("only %d metrics were found: %v", len(names), names)
	}
	return names
}

// A testDaemon has something to report for every metric.
type testDaemon struct{ admin, api string }

func beginDaemon(t *testing.T) *testDaemon {
	t.Helper()
	bin := filepath.Join(programAlone(t), "dbcron")
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(endpoint.Close)
	home := t.TempDir()
	environment := append(os.Environ(), "DBCRON_DATABASE_URL=sqlite://"+filepath.Join(home, "db"), "GORACE=atexit_sleep_ms=0")
	do := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), bin, args...)
		c.Env = environment
		if said, err := c.CombinedOutput(); err != nil {
			t.Fatalf("dbcron %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
	do("migrate", "up")
	do("schedule", "add", "fails", "--spec", "@every 1s", "--", "false")
	do("schedule", "add", "works", "--spec", "@every 1s", "--", "true")
	do("endpoint", "set", "mail", endpoint.URL)
	do("job", "enqueue", "welcome", "{}", "--queue", "mail")
	d := &testDaemon{admin: "127.0.0.1:" + dbtest.FreePort(t), api: "127.0.0.1:" + dbtest.FreePort(t)}
	c := exec.CommandContext(t.Context(), bin, "serve", "--push-to", "127.0.0.1", "--listen", d.api, "--admin-listen", d.admin)
	c.Env = environment
	runUntilTheEnd(t, c)
	fetch(t, "http://"+d.api+"/api/v1/queues")
	return d
}

// runUntilTheEnd runs a program, and stops it with the test.
func runUntilTheEnd(t *testing.T, c *exec.Cmd) {
	t.Helper()
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = time.Minute
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Wait() // its context has ended
		if t.Failed() {
			t.Logf("%s said\n%s", filepath.Base(c.Path), said.String())
		}
	})
}

// fetch reads a page, and waits until there is one.
func fetch(t *testing.T, address string) (text string) {
	t.Helper()
	var problem error
	waitFor(t, func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if problem = err; err != nil {
			return false
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if problem = err; err == nil && answer.StatusCode != http.StatusOK {
			problem = fmt.Errorf("%s: %s", answer.Status, body)
		}
		text = string(body)
		return problem == nil
	}, func() string { return fmt.Sprintf("%s: %v", address, problem) })
	return text
}

// waitFor waits for what must happen, on a slow machine too.
func waitFor(t *testing.T, is func() bool, why func() string) {
	t.Helper()
	tick, over := time.NewTicker(100*time.Millisecond), time.After(3*time.Minute)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatal(why())
		}
	}
}
