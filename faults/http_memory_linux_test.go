package faults

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

const (
	// memoryForRequests limits how much more memory than when idle a daemon may take.
	memoryForRequests = 256 << 20

	worstBody     = 16<<20 - 1<<10 // bytes; the default limit is 16 MiB
	worstRequests = 64             // concurrent
)

// A worst is a request likely to take a lot of memory.
type worst struct {
	name, method, path string
	body               []byte
	chunked            bool // no Content-Length
	status             int  // of its final answer
}

// repeated returns a body of the maximum size: begin, as many parts as fit, and end.
func repeated(begin, end string, part func(i int) string) []byte {
	text := bytes.NewBufferString(begin)
	for i := 0; text.Len() < worstBody-len(end)-100; i++ {
		text.WriteString(part(i))
	}
	return append(text.Bytes(), end...)
}

func worstOfAll() []worst {
	members := repeated(`{"kind":"x"`, `}`, func(i int) string { return fmt.Sprintf(`,"%x":1`, i) })
	same := repeated(`{"kind":"x"`, `}`, func(int) string { return `,"key":""` })
	numbers := repeated(`{"kind":"x","queue":"memory","payload":[0`, `]}`, func(int) string { return `,0` })
	jobs := repeated(`{"jobs":[{"kind":"x"}`, `]}`, func(int) string { return `,{"kind":"x"}` })
	free := repeated(`{"env":{"":""`, `}}`, func(i int) string { return fmt.Sprintf(`,"%x":""`, i) })
	claims := repeated(`{"claims":[{"token":"x"}`, `]}`, func(int) string { return `,{"token":"x"}` })
	payload := `,{"kind":"x","queue":"memory","payload":"` + strings.Repeat("x", worstBody/1000-60) + `"}`
	full := append(bytes.Repeat([]byte(payload), 1000), `]}`...)
	full = append([]byte(`{"jobs":[`), full[1:]...)
	return []worst{
		{name: "unknown members", path: "jobs", body: members, status: 422},
		{name: "unknown members, chunked", path: "jobs", body: members, chunked: true, status: 422},
		{name: "the same member", path: "jobs", body: same, status: 422},
		{name: "numbers in a payload", path: "jobs", body: numbers, status: 413},
		{name: "too many jobs", path: "jobs/batch", body: jobs, status: 422},
		{name: "a full batch", path: "jobs/batch", body: full, status: 201},
		{name: "unknown members in a preview", path: "schedules/preview", body: members, status: 413},
		{name: "too many claims", path: "claims/complete", body: claims, status: 422},
		{name: "free members", method: http.MethodPut, path: "schedules/x", body: free, status: 422},
		{
			name: "not JSON at its end", path: "jobs/batch", body: repeated(`{"jobs":[{"kind":"x"}`, ``, func(int) string { return `,{}` }),
			status: 400,
		},
	}
}

// ask repeats a request until the server has room for it, and returns the status and length of the
// answer.
func (w *worst) ask(t *testing.T, url string) (status int, length int64) {
	for {
		var body io.Reader = bytes.NewReader(w.body)
		if w.chunked {
			body = struct{ io.Reader }{body}
		}
		r, err := http.NewRequestWithContext(t.Context(), w.method, url+w.path, body)
		if err != nil {
			t.Error(err)
			return 0, 0
		}
		r.Header.Set("Content-Type", "application/json")
		got, err := http.DefaultClient.Do(r)
		if err != nil { // the answer came before the whole body was sent
			continue
		}
		length, err = io.Copy(io.Discard, got.Body)
		got.Body.Close()
		if err == nil && got.StatusCode != http.StatusServiceUnavailable {
			return got.StatusCode, length
		}
	}
}

// The memory of requests is bounded, whatever their number, size and content.
func TestMemoryOfRequests(t *testing.T) {
	binary, all := build(t), worstOfAll()
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		o := openOffice(t, db, binary)
		small := worst{method: http.MethodPost, path: "jobs", body: []byte(`{"kind":"x","queue":"memory"}`)}
		if status, _ := small.ask(t, o.url); status != http.StatusCreated {
			t.Fatalf("a small job: %d", status)
		}
		idle := memoryOf(t, o.cmd.Process.Pid, "VmRSS")
		var wg sync.WaitGroup
		for i := range worstRequests {
			w := all[i%len(all)]
			if w.method == "" {
				w.method = http.MethodPost
			}
			wg.Go(func() {
				status, length := w.ask(t, o.url)
				if status != w.status || w.status >= 400 && length > 64<<10 {
					t.Errorf("%s: %d with %d bytes, want %d with an answer that people can read", w.name, status, length, w.status)
				}
			})
		}
		wg.Wait()
		peak := memoryOf(t, o.cmd.Process.Pid, "VmHWM")
		t.Logf("idle %d MiB, at most %d MiB more", idle>>20, (peak-idle)>>20)
		if peak-idle > memoryForRequests {
			t.Errorf("%d requests at a time took %d MiB", worstRequests, (peak-idle)>>20)
		}
	})
}

// memoryOf returns a figure of a process in bytes: VmRSS is its memory now, VmHWM the maximum so far.
func memoryOf(t *testing.T, pid int, figure string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == figure+":" {
			n, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("%s is not there", figure)
	return 0
}
