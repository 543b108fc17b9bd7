package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	// memoryForRequests limits how much more memory than when idle a daemon may take.
	memoryForRequests = 256 << 20

	worstBody     = 16<<20 - 1<<10 // bytes; the default limit is 16 MiB
	worstRequests = 64             // concurrent
)

// A worst is a request likely to take a lot of memory.
type worst struct {
	method, path string
	body         []byte
	chunked      bool // no Content-Length
	status       int  // of its final answer; 0: any
}

// repeatedTo returns a body of at most a size: begin, as many parts as fit, and end.
func repeatedTo(size int, begin, end string, part func(i int) string) []byte {
	text := bytes.NewBufferString(begin)
	for i := 0; text.Len() < size-len(end)-1100; i++ {
		text.WriteString(part(i))
	}
	return append(text.Bytes(), end...)
}

// worstOfAll lists the worst requests of each operation, with bodies up to a size. It has all operations: see TestWorstOfAll.
func worstOfAll(size int) map[string][]worst {
	repeated := func(begin, end string, part func(i int) string) []byte { return repeatedTo(size, begin, end, part) }
	members := repeated(`{"kind":"x"`, `}`, func(i int) string { return fmt.Sprintf(`,"%x":1`, i) })
	same := repeated(`{"kind":"x"`, `}`, func(int) string { return `,"key":""` })
	numbers := repeated(`{"kind":"x","queue":"memory","payload":[0`, `]}`, func(int) string { return `,0` })
	digits := repeated(`{"kind":"x","max_attempts":1`, `}`, func(int) string { return strings.Repeat("0", 1000) })
	text := repeated(`{"kind":"`, `"}`, func(int) string { return strings.Repeat("x", 1000) })
	base64 := repeated(`{"kind":"x","payload_base64":"`, `====="}`, func(int) string { return strings.Repeat("eHh4", 250) })
	jobs := repeated(`{"jobs":[{"kind":"x"}`, `]}`, func(int) string { return `,{"kind":"x"}` })
	free := repeated(`{"env":{"":""`, `}}`, func(i int) string { return fmt.Sprintf(`,"%x":""`, i) })
	claims := repeated(`{"claims":[{"token":"x"}`, `]}`, func(int) string { return `,{"token":"x"}` })
	tokens := repeatedTo(min(size, 4<<20), `{"claims":[{"token":"x"}`, `]}`, func(int) string { return `,{"token":"x"}` })
	results := repeated(`{"claims":[{"token":"x","result":[0`, `]}]}`, func(int) string { return `,0` })
	reasons := repeated(`{"claims":[{"token":"x","error":"`, `"}]}`, func(int) string { return strings.Repeat("x", 1000) })
	payload := `,{"kind":"x","queue":"filled","payload":"` + strings.Repeat("x", max(1, size/1000-60)) + `"}`
	full := append(bytes.Repeat([]byte(payload), 1000), `]}`...)
	full = append([]byte(`{"jobs":[`), full[1:]...)
	half := repeated(`{"jobs":[{"kind":"x"}`, ``, func(int) string { return `,{}` })
	small := append([]byte(`{`), bytes.Repeat([]byte(" "), 64<<10-2)...) // all that it may have
	post := func(path string, bodies ...[]byte) (all []worst) {
		for _, body := range bodies {
			all = append(all, worst{method: http.MethodPost, path: path, body: body}, worst{method: http.MethodPost, path: path, body: body, chunked: true})
		}
		return all
	}
	put := func(path string, bodies ...[]byte) []worst {
		all := post(path, bodies...)
		for i := range all {
			all[i].method = http.MethodPut
		}
		return all
	}
	get := func(path string) []worst { return []worst{{method: http.MethodGet, path: path}} }
	remove := func(path string) []worst { return []worst{{method: http.MethodDelete, path: path}} }
	all := map[string][]worst{
		"enqueue-job": post("jobs", members, same, numbers, digits, text, base64), "enqueue-jobs": append(post("jobs/batch", jobs, half),
			worst{method: http.MethodPost, path: "jobs/batch", body: full, status: http.StatusCreated}),
		"complete-claims": post("claims/complete", claims, results), "fail-claims": post("claims/fail", claims, reasons),
		"heartbeat-claims": post("claims/heartbeat", tokens), "release-claims": post("claims/release", tokens),
		"create-group": post("groups", jobs, full), "publish": post("topics/t/publish", numbers, text), "set-schedule": put("schedules/x", free, text),
		"claim-jobs": {{method: http.MethodPost, path: "queues/memory/claim", body: []byte(`{"max": 1000, "lease": "12h"}`)}},

		"list-jobs": get("queues/memory/jobs?limit=1000"), "get-job": get("queues/memory/jobs/ID"), "get-job-by-id": get("jobs/ID"),
		"await-job": get("queues/memory/jobs/ID/await?wait=1ms"), "await-job-by-id": get("jobs/ID/await?wait=1ms"),
		"explain-job": get("queues/memory/jobs/ID/explain"), "explain-job-by-id": get("jobs/ID/explain"),
		"get-payload": get("queues/memory/jobs/ID/payload"), "get-payload-by-id": get("jobs/ID/payload"),
		"list-schedules": get("schedules?limit=1000"), "get-schedule": get("schedules/s0"), "group-results": get("groups/1/results?limit=1000"),
		"schedule-history": get("schedules/s0/runs?limit=1000"), "explain-schedule": get("schedules/s0/explain"),
		"list-audit": get("audit?limit=1000"), "list-groups": get("groups?limit=1000"), "list-locks": get("locks?limit=1000"), "list-nodes": get("nodes?limit=1000"),
		"list-queues": get("queues?limit=1000"), "list-endpoints": get("endpoints?limit=1000"), "list-limits": get("queues/memory/limits"),
		"list-routes": get("routes?limit=1000"), "list-subscriptions": get("topics?limit=1000"), "all-queue-stats": get("stats/queues"),

		"get-endpoint": get("queues/memory/endpoint"), "get-group": get("groups/1"), "get-limit": get("queues/memory/limits/x"), "get-lock": get("locks/x"),
		"get-queue": get("queues/memory"), "get-route": get("routes/x"), "get-run": get("runs/1"), "queue-stats": get("queues/memory/stats"),
		"queue-status": get("queues/memory/status"), "list-queue-status": get("status/queues?limit=1000"),
		"list-all-limits": get("limits?limit=1000"), "list-shares": get("queues/memory/shares?limit=1000"), "node-work": get("nodes/none/work"), "schedule-status": get("schedules/s0/status"),
		"list-findings": get("findings"),
		"finished":      get("stats"), "schedule-next": get("schedules/s0/next?count=10000"),
		"list-runs": get("runs?limit=1000"), "list-attempts": get("runs/1/attempts"),
		"delete-endpoint": remove("queues/none/endpoint"), "delete-group": remove("groups/77"), "delete-job": remove("queues/none/jobs/77"),
		"delete-job-by-id": remove("jobs/77"), "delete-limit": remove("queues/none/limits/x"), "delete-queue": remove("queues/none"),
		"delete-queue-limit": remove("queues/none/limits"), "delete-share": remove("queues/none/shares/x"), "delete-route": remove("routes/none"), "delete-schedule": remove("schedules/none"),
		"unsubscribe": remove("topics/t/queues/none"), "subscribe": put("topics/none/queues/none", nil),
	}
	for id, path := range map[string]string{
		"bulk-jobs": "queues/none/jobs/bulk", "cancel-job": "queues/none/jobs/77/cancel", "cancel-job-by-id": "jobs/77/cancel",
		"retry-job": "queues/none/jobs/77/retry", "retry-job-by-id": "jobs/77/retry", "run-job": "queues/none/jobs/77/run", "run-job-by-id": "jobs/77/run",
		"pause-queue": "queues/none/pause", "resume-queue": "queues/none/resume", "purge-queue": "queues/none/purge", "seal-group": "groups/77/seal",
		"acknowledge-finding": "findings/none/acknowledge", "reopen-finding": "findings/none/reopen",
		"drain-node": "nodes/none/drain", "undrain-node": "nodes/none/undrain", "cancel-run": "runs/77/cancel", "run-schedule": "schedules/none/run",
		"pause-schedule": "schedules/none/pause", "backfill-schedule": "schedules/none/backfill", "resume-schedule": "schedules/none/resume", "preview-schedule": "schedules/preview",
		"acquire-lock": "locks/x/acquire", "renew-lock": "locks/x/renew", "release-lock": "locks/x/release", "force-release-lock": "locks/x/force-release",
		"resize-lock": "locks/x/resize", "purge-locks": "locks/purge", "resize-queue": "queues/none/resize", "move-jobs": "queues/none/move",
	} {
		all[id] = post(path, small)
	}
	for id, path := range map[string]string{
		"set-endpoint": "queues/none/endpoint", "set-limit": "queues/none/limits/x", "set-share": "queues/none/shares/x", "set-queue-limit": "queues/none/limits", "set-queue": "queues/none",
		"set-route": "routes/none",
	} {
		all[id] = put(path, small)
	}
	return all
}

// withoutWorst are operations that have no place in the list.
var withoutWorst = map[string]string{"events": "their number is limited: 100, and 20 of a token"}

// Every operation has its worst requests: a new one needs some, too.
func TestWorstOfAll(t *testing.T) {
	text, err := httpapi.Document("")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	all, seen := worstOfAll(1<<10), map[string]bool{}
	for path, item := range document.Paths {
		for method, op := range item {
			id := op.OperationID
			if seen[id] = true; withoutWorst[id] == "" && len(all[id]) == 0 {
				t.Errorf("%s %s: the list has no worst request of %s", method, path, id)
			}
		}
	}
	for id := range all {
		if !seen[id] {
			t.Errorf("%s is in the list, and no operation", id)
		}
	}
}

// ask repeats a request until the server has room for it, and returns the status and length of the
// answer.
func (w *worst) ask(t *testing.T, url, token string) (status int, length int64) {
	for t.Context().Err() == nil {
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
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
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
	return 0, 0
}

// fillMemory makes rows that are as large as they may be, and returns the id of a job.
func fillMemory(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	large := strings.Repeat("x", 1<<20)
	c, err := queue.New(db.DB, queue.Options{})
	dbtest.Must(t, err)
	var id string
	for range 20 {
		all := make([]queue.Job, 5)
		for i := range all {
			all[i] = queue.Job{Queue: "memory", Kind: "x", Payload: []byte(`"` + large[:1<<20-2] + `"`)}
		}
		done, err := c.EnqueueMany(t.Context(), all)
		dbtest.Must(t, err)
		id = strconv.FormatInt(done[0].ID, 10)
	}
	for i := range 20 {
		s := scheduler.Schedule{Name: fmt.Sprintf("s%d", i), Spec: "@yearly", Command: "true " + large[:1<<20-10], Stdin: large[:1<<20-10]}
		dbtest.Must(t, scheduler.Add(t.Context(), db.DB, s))
	}
	return id
}

// A measured daemon gets many requests at a time, and its memory is compared with that when it was idle.
type measured struct {
	t             *testing.T
	o             *office
	tokens        []string // each has a quarter of the memory
	idle, highest int
}

func measureMemory(t *testing.T, db *dbtest.DB, binary string) *measured {
	t.Helper()
	m := &measured{t: t}
	for i := range 8 {
		token, err := httpapi.NewTokens(db.DB).Create(t.Context(), fmt.Sprint(i), []httpapi.Scope{httpapi.ScopeAdmin}, 0)
		dbtest.Must(t, err)
		m.tokens = append(m.tokens, token)
	}
	m.o = openOffice(t, db, binary)
	first := worst{method: http.MethodPost, path: "jobs", body: []byte(`{"kind":"x","queue":"small"}`)}
	if status, _ := first.ask(t, m.o.url, m.tokens[0]); status != http.StatusCreated {
		t.Fatalf("a small job: %d", status)
	}
	m.idle = memoryOf(t, m.o.cmd.Process.Pid, "VmRSS")
	return m
}

// send sends some requests in turn, n at a time.
func (m *measured) send(what string, n int, list []worst) {
	m.t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		w := list[i%len(list)]
		wg.Go(func() {
			status, length := w.ask(m.t, m.o.url, m.tokens[i%len(m.tokens)])
			if w.status != 0 && status != w.status || status == http.StatusInternalServerError || status >= 400 && length > 64<<10 {
				m.t.Errorf("%s: %d with %d bytes", w.path, status, length)
			}
		})
	}
	wg.Wait()
	peak := memoryOf(m.t, m.o.cmd.Process.Pid, "VmHWM") - m.idle
	if peak > m.highest {
		m.t.Logf("%s: %d MiB more than %d", what, peak>>20, m.idle>>20)
		m.highest = peak
	}
	if peak > memoryForRequests {
		m.t.Fatalf("%s: %d requests at a time took %d MiB", what, n, peak>>20)
	}
}

// The memory of requests is bounded, whatever their operation, number, size and content, and whoever sends them.
func TestMemoryOfBodies(t *testing.T) {
	dbtest.OnlyLong(t, "it sends a gigabyte")
	binary, all := build(t), worstOfAll(worstBody)
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		var large []worst
		for _, op := range slices.Sorted(maps.Keys(all)) {
			for _, w := range all[op] {
				if len(w.body) > 1<<20 {
					large = append(large, w)
				}
			}
		}
		measureMemory(t, db, binary).send("large bodies", max(worstRequests, len(large)), large)
	})
}

// largeAnswers are operations whose answers can be large. Each is asked for alone, and the others together.
var largeAnswers = []string{
	"get-job", "get-job-by-id", "explain-job", "explain-job-by-id", "get-payload", "get-payload-by-id", "get-schedule", "schedule-status", "list-jobs", "list-schedules", "explain-schedule",
}

// The memory of answers is bounded, too.
func TestMemoryOfAnswers(t *testing.T) {
	dbtest.OnlyLong(t, "it sends 64 requests for each large answer")
	binary, all := build(t), worstOfAll(1<<10)
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		id := fillMemory(t, db)
		m := measureMemory(t, db, binary)
		var rest []worst
		for _, op := range slices.Sorted(maps.Keys(all)) {
			list := slices.Clone(all[op])
			for i := range list {
				list[i].path = strings.ReplaceAll(list[i].path, "ID", id)
			}
			switch {
			case slices.Contains(largeAnswers, op):
				m.send(op, worstRequests, list)
			case op != "claim-jobs":
				rest = append(rest, list...)
			}
		}
		m.send("the others", max(worstRequests, len(rest)), rest)
	})
}

// So is that of claimed jobs, which it takes while they are sent.
func TestMemoryOfClaims(t *testing.T) {
	dbtest.OnlyLong(t, "it reads hundreds of megabytes")
	binary := build(t)
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		fillMemory(t, db)
		measureMemory(t, db, binary).send("claim-jobs", worstRequests, worstOfAll(1 << 10)["claim-jobs"])
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
