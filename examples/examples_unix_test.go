//go:build unix

// These tests check the examples in other languages against the contracts of pull and push.
// testdata/cli/examples.txtar runs those that enqueue against a daemon.
package examples

import (
	"bufio"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// longWait bounds what must happen even on a slow machine.
const longWait = 2 * time.Minute

// A program is an example that runs until the test ends, with its output.
type program struct {
	cmd    *exec.Cmd
	lines  *bufio.Reader
	waited sync.Once
	err    error
}

func start(t *testing.T, file string, args []string, env ...string) *program {
	t.Helper()
	name := map[string]string{".py": "python3", ".mjs": "node", ".sh": "sh"}[filepath.Ext(file)]
	needed := []string{name}
	if name == "sh" {
		needed = []string{"sh", "curl", "jq"}
	}
	for _, name := range needed {
		if _, err := exec.LookPath(name); err != nil && os.Getenv("CI") == "true" {
			t.Fatalf("%v (tools/test-deps installs it)", err)
		} else if err != nil {
			t.Skip(err)
		}
	}
	p := &program{cmd: exec.CommandContext(t.Context(), name, append([]string{file}, args...)...)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to signal curl as well
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewReader(out)
	t.Cleanup(func() { _ = p.wait() }) // tests check how it ends where it matters
	return p
}

// wait waits until the program has ended.
func (p *program) wait() error {
	p.waited.Do(func() {
		_, _ = io.Copy(io.Discard, p.lines)
		p.err = p.cmd.Wait()
	})
	return p.err
}

// A puller is a daemon that gives out jobs, as far as the examples need it: the contract of pull, in
// memory.
type puller struct {
	mu      sync.Mutex
	jobs    []string // payloads
	given   int
	told    []string
	allTold chan struct{}
	ended   chan struct{} // closed at the end of the test: requests stop waiting for jobs
}

func (p *puller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Claims []struct {
			Token, Error string
			Dead         bool
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Method != http.MethodPost ||
		r.Header.Get("Authorization") != "Bearer s3cret" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/api/v1/queues/mail/claim" {
		p.claim(w, r)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range in.Claims {
		p.told = append(p.told, fmt.Sprintf("%s %s dead:%t error:%t", filepath.Base(r.URL.Path), c.Token, c.Dead, c.Error != ""))
		if len(p.told) == len(p.jobs) {
			close(p.allTold)
		}
	}
	fmt.Fprintf(w, `{"done": %d, "lost": []}`, len(in.Claims))
}

func (p *puller) claim(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	n := p.given
	p.given = min(n+1, len(p.jobs))
	p.mu.Unlock()
	if n < len(p.jobs) {
		fmt.Fprintf(w, `{"node": "stub", "jobs": [{"token": "t%d", "id": "%d", "queue": "mail", "kind": "welcome", "payload": %s, "attempt": 1, "max_attempts": 10}]}`, n, n+1, p.jobs[n])
		return
	}
	select { // no job arrives
	case <-r.Context().Done():
	case <-p.ended:
	}
	fmt.Fprint(w, `{"node": "stub", "jobs": []}`)
}

func TestPullWorkers(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"python/worker.py", "node/worker.mjs", "curl/worker.sh"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			p := &puller{
				jobs: []string{`{"to": "ada"}`, `{"from": "bob"}`, `{"to": "eve"}`}, allTold: make(chan struct{}),
				ended: make(chan struct{}),
			}
			server := httptest.NewServer(p)
			t.Cleanup(func() {
				close(p.ended)
				server.Close()
			})
			worker := start(t, file, []string{"mail"}, "DBCRON_API="+server.URL+"/api/v1", "DBCRON_TOKEN=s3cret")
			select {
			case <-p.allTold:
			case <-time.After(longWait):
				t.Fatal("it does not do its jobs")
			}
			slices.Sort(p.told)
			want := []string{"complete t0 dead:false error:false", "complete t2 dead:false error:false", "fail t1 dead:true error:true"}
			if !slices.Equal(p.told, want) {
				t.Errorf("told %q, want %q", p.told, want)
			}
			// A worker without a job ends at once on SIGTERM.
			if err := syscall.Kill(-worker.cmd.Process.Pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := worker.wait(); err != nil && filepath.Ext(file) != ".sh" {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

const secret = "whsec_c2VjcmV0"

// deliver sends a job as the daemon does, with the signature of the text signed. The JSON answer
// must match its status.
func deliver(t *testing.T, address, kind, body, signed, secret string, at time.Time) int {
	t.Helper()
	return post(t, address, kind, body, signed, secret, at, func(answer *http.Response) {
		var said struct{ Status string }
		if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
			t.Errorf("the answer is no JSON: %v", err)
		}
		if want := map[int]string{200: "success", 410: "permanent-failure"}[answer.StatusCode]; said.Status != cmp.Or(want, "failure") {
			t.Errorf("status %d says %q", answer.StatusCode, said.Status)
		}
	})
}

func post(t *testing.T, address, kind, body, signed, secret string, at time.Time, look func(*http.Response)) int {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "17.%d.%s", at.Unix(), signed)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Idempotency-Key": "17", "webhook-id": "17", "webhook-timestamp": fmt.Sprint(at.Unix()),
		"webhook-signature": "v1,AAAA v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), "Dbcron-Queue": "mail", "Dbcron-Kind": kind,
		"Dbcron-Attempt": "1", "Dbcron-Max-Attempts": "10", "Dbcron-Deadline": at.Add(time.Minute).UTC().Format(time.RFC3339),
	} {
		r.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	look(answer)
	return answer.StatusCode
}

// The workers in docs/push.md do a signed job and refuse an unsigned one.
func TestShownWorkers(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/push.md")
	if err != nil {
		t.Fatal(err)
	}
	for language, file := range map[string]string{"python": "worker.py", "js": "worker.mjs"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			_, rest, _ := strings.Cut(string(page), "```"+language+"\n")
			text, _, found := strings.Cut(rest, "```")
			path := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil || !found {
				t.Fatal("docs/push.md shows none", err)
			}
			address := "127.0.0.1:" + dbtest.FreePort(t)
			_, port, _ := net.SplitHostPort(address)
			worker := start(t, path, nil, "DBCRON_SECRET="+secret, "PORT="+port)
			t.Cleanup(func() { _ = worker.cmd.Cancel() }) // it ends by itself
			now := time.Now()                             //nolint:forbidigo // as below
			answers := func(body, secret string) int {
				return post(t, address, "welcome", body, body, secret, now, func(*http.Response) {})
			}
			awaitEndpoint(t, func() int { return answers(`{"to": "ada"}`, secret) })
			if got := answers(`{"to": "eve"}`, "whsec_ZXZl"); got != 401 {
				t.Errorf("with another secret: %d", got)
			}
			if got := answers(`{`, secret); got != 500 && got != 0 {
				t.Errorf("what fails: %d", got)
			}
			if got := answers(`{"to": "bob"}`, secret); got != 200 {
				t.Errorf("a good one: %d", got)
			}
			for _, want := range []string{"mail to ada\n", "mail to bob\n"} {
				if line, err := worker.lines.ReadString('\n'); err != nil || line != want {
					t.Errorf("it prints %q, %v", line, err)
				}
			}
		})
	}
}

// awaitEndpoint waits until the endpoint answers.
func awaitEndpoint(t *testing.T, status func() int) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(longWait); status() == 0; {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("nobody listens")
		}
	}
}

func TestPushWorkers(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"python/push.py", "node/push.mjs"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			address := "127.0.0.1:" + dbtest.FreePort(t)
			host, port, _ := net.SplitHostPort(address)
			worker := start(t, file, []string{host, port}, "DBCRON_SECRET=whsec_b3RoZXI= "+secret)
			t.Cleanup(func() { _ = worker.cmd.Cancel() }) // it ends by itself
			now := time.Now()                             //nolint:forbidigo // the endpoint goes by the host's clock, too
			awaitEndpoint(t, func() int { return deliver(t, address, "welcome", `{"to": "ada"}`, `{"to": "ada"}`, secret, now) })
			if line, err := worker.lines.ReadString('\n'); err != nil || line != "mail to ada\n" {
				t.Errorf("it prints %q, %v", line, err)
			}
			for _, c := range []struct {
				what, body, signed, secret string
				at                         time.Time
				want                       int
			}{
				{"a good one", `{"to": "bob"}`, `{"to": "bob"}`, secret, now, 200},
				{"for good", `{"from": "bob"}`, `{"from": "bob"}`, secret, now, 410},
				{"tried again", `null`, `null`, secret, now, map[bool]int{true: 500, false: 410}[filepath.Ext(file) == ".py"]},
				{"another body", `{"to": "eve"}`, `{"to": "bob"}`, secret, now, 401},
				{"another secret", `{"to": "eve"}`, `{"to": "eve"}`, "whsec_ZXZl", now, 401},
				{"too old", `{"to": "eve"}`, `{"to": "eve"}`, secret, now.Add(-time.Hour), 401},
				{"from the future", `{"to": "eve"}`, `{"to": "eve"}`, secret, now.Add(time.Hour), 401},
			} {
				if got := deliver(t, address, "welcome", c.body, c.signed, c.secret, c.at); got != c.want {
					t.Errorf("%s: status %d, want %d", c.what, got, c.want)
				}
			}
			// A refused job was not done.
			if line, err := worker.lines.ReadString('\n'); err != nil || line != "mail to bob\n" {
				t.Errorf("it prints %q, %v", line, err)
			}
			_ = worker.cmd.Cancel()
			if rest, _ := io.ReadAll(worker.lines); strings.Contains(string(rest), "mail to") {
				t.Errorf("it prints %s", rest)
			}
		})
	}
}
