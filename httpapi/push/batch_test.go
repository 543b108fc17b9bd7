package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// A batchReceiver is an endpoint that takes several jobs at once. Each job's kind decides its
// outcome.
type batchReceiver struct {
	*receiver
	mu     sync.Mutex
	served int
	whole  func(w http.ResponseWriter, jobs []wire.Delivery) bool // answers instead
}

func receiveBatches(t *testing.T) *batchReceiver {
	t.Helper()
	r := &batchReceiver{}
	r.receiver = receive(t, func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock() // requests come one after the other: see the endpoint's concurrency
		defer r.mu.Unlock()
		g := r.got()[r.served]
		r.served++
		var jobs []wire.Delivery
		if err := json.Unmarshal([]byte(g.body), &jobs); err != nil {
			t.Errorf("a body of %d bytes: %v", len(g.body), err)
		}
		if n := g.header.Get("Dbcron-Batch"); n != strconv.Itoa(len(jobs)) || len(g.body) > longestBody && len(jobs) > 1 {
			t.Errorf("%d jobs, and not %s, in %d bytes", len(jobs), n, len(g.body))
		}
		if r.whole != nil && r.whole(w, jobs) {
			return
		}
		var out []string
		for _, j := range jobs {
			switch j.Kind {
			case "silent":
			case "odd":
				out = append(out, `{"id": "`+j.ID+`", "what": 1}`, `7`)
			default:
				out = append(out, fmt.Sprintf(`{"id": %q%s}`, j.ID, strings.TrimPrefix(j.Kind, "k")))
			}
		}
		fmt.Fprintf(w, " [%s] ", strings.Join(append(out, `{"id": "1"}`), ","))
	})
	return r
}

func batches(n int) func(*Endpoint) {
	return func(e *Endpoint) { e.Batch, e.Concurrency = n, 1 }
}

// Several jobs are a request, signed as one, and each has an outcome of its own.
func TestBatch(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db), receiveBatches(t)
		e := point(t, db, c, "q", r.URL, batches(3))
		g, err := c.NewGroup(t.Context(), queue.Group{})
		must(t, err)
		done := []int64{
			enqueue(t, c, queue.Job{Key: "x", Payload: []byte(`{"a": "<"}`)}), enqueue(t, c, queue.Job{Key: "x"}),
			enqueue(t, c, queue.Job{Binary: true, Payload: []byte("\xff")}), enqueue(t, c, queue.Job{Kind: `, "discard": true`}),
			enqueue(t, c, queue.Job{Kind: `, "result": {"n": 1}`, Group: g}),
		}
		dead := map[int64]string{
			enqueue(t, c, queue.Job{Kind: `, "error": "no", "dead": true`}):                        "no",
			enqueue(t, c, queue.Job{Kind: `, "error": "bad"`, MaxAttempts: 2}):                     "bad",
			enqueue(t, c, queue.Job{Kind: "silent", MaxAttempts: 2}):                               "no outcome of the job",
			enqueue(t, c, queue.Job{Kind: "odd", MaxAttempts: 1}):                                  "no outcome of the job",
			enqueue(t, c, queue.Job{Kind: `, "retry_after": "soon"`, MaxAttempts: 1}):              "is no duration",
			enqueue(t, c, queue.Job{Endpoint: r.URL + "/own", Kind: `, "dead": true`}):             "gave no reason",
			enqueue(t, c, queue.Job{Kind: `, "error": "x", "retry_after": "1ms"`, MaxAttempts: 2}): "x",
		}
		start(t, db, Options{})
		for _, id := range done {
			becomes(t, c, id, "")
		}
		for id, text := range dead {
			if i := becomes(t, c, id, admin.StateDead); !strings.Contains(i.Error, text) {
				t.Errorf("%s failed with %q, not %q", i.Kind, i.Error, text)
			}
		}
		made, _, err := c.ResultsAfter(t.Context(), g, 0, 10)
		must(t, err)
		if len(made) != 1 || !strings.Contains(string(made[0].Result), `1`) {
			t.Errorf("the group has %+v", made)
		}
		several, inOrder := false, []string(nil)
		for _, g := range r.got() {
			verifies(t, g, e.Secret)
			several = several || g.header.Get("Dbcron-Batch") == "3"
			if strings.Contains(g.body, `"key":"x"`) {
				inOrder = append(inOrder, g.body)
			}
		}
		if !several || len(inOrder) != 2 || !strings.Contains(inOrder[0], `"payload":{"a":"<"}`) {
			t.Errorf("several at once: %v, and of one key %q", several, inOrder)
		}
	})
}

// An answer without outcomes is one for each job, as for a single one; and a change of the endpoint back to
// single jobs is gone by.
func TestBatchFails(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db), receiveBatches(t)
		says := []string{"500 broken", "200 ok", "200 {}", "204 ", "200 [", "410 gone"}
		r.whole = func(w http.ResponseWriter, jobs []wire.Delivery) bool {
			n := jobs[0].Attempt
			if n > len(says) {
				return false
			}
			status, body, _ := strings.Cut(says[n-1], " ")
			code, _ := strconv.Atoi(status)
			w.WriteHeader(code)
			fmt.Fprint(w, body)
			return true
		}
		point(t, db, c, "q", r.URL, batches(10))
		for _, text := range []string{"broken", "no JSON array of outcomes"} {
			ids := []int64{enqueue(t, c, queue.Job{MaxAttempts: 1}), enqueue(t, c, queue.Job{MaxAttempts: 1})}
			stop := start(t, db, Options{})
			for _, id := range ids {
				if i := becomes(t, c, id, admin.StateDead); !strings.Contains(i.Error, text) {
					t.Errorf("it failed with %q, not %q", i.Error, text)
				}
			}
			stop()
			r.mu.Lock()
			says = says[1:]
			r.mu.Unlock()
		}
		r.mu.Lock()
		says = []string{"200 {}", "204 ", "200 [", "410 gone"}
		r.mu.Unlock()
		start(t, db, Options{})
		if i := becomes(t, c, enqueue(t, c, queue.Job{}), admin.StateDead); i.Attempts != 4 || !strings.Contains(i.Error, "410") {
			t.Errorf("after %d attempts: %q", i.Attempts, i.Error)
		}
		slow := make(chan struct{})
		r.mu.Lock()
		says, r.whole = nil, func(http.ResponseWriter, []wire.Delivery) bool { <-slow; return false }
		r.mu.Unlock()
		late := enqueue(t, c, queue.Job{Timeout: 50 * time.Millisecond, MaxAttempts: 1})
		if i := becomes(t, c, late, admin.StateDead); !strings.Contains(i.Error, "no whole answer within 50ms") {
			t.Errorf("it failed with %q", i.Error)
		}
		close(slow)
	})
}

// An answer takes no more memory than the outcomes of the jobs that were sent, and is not read further, whatever an
// endpoint sends. (The rest of this class, answers and bodies of strangers, is in TestBodySizes and TestAnswer.)
func TestAnswersAreBounded(t *testing.T) {
	p := &parcel{jobs: []*queue.Delivery{{ID: 1}, {ID: 2}}}
	zeros := "[" + strings.Repeat("0,", 4<<20) + "0]"
	for _, c := range []struct{ body, want, unusable string }{
		{`[{"id":"1"},{"id":"2","error":"no"}]`, "1 2", ""},
		{` [ {"id":"2"} , {"id":"3"}, 7, {"id":"2","error":"late"}, {"id":"1","what":1} ] `, "2", ""},
		{`[{"id":"1"},{"id":"2"},` + zeros, "1 2", ""}, // not read to its end
		{zeros, "", ""},
		{`[{"id":"1"},` + zeros + `]`, "1", "outcome of more than 2"}, // one element is too long
		{`[{"id":"1","result":"` + strings.Repeat("x", 1<<20) + `"},{"id":"2"}]`, "1 2", ""},
		{`[{"id":"1","result":"` + strings.Repeat("x", 3<<20) + `"},{"id":"2"}]`, "", "outcome of more than 2"},
		{strings.Repeat(" ", 9<<20) + `[{"id":"1"}]`, "", "more than 8 MiB"},
		{strings.Repeat("[", 4<<20), "", "no JSON array"},
		{`[` + strings.Repeat("[", 4<<20), "", "no JSON array"},
		{``, "", "no JSON array"},
		{`{}`, "", "no JSON array"},
		{`[`, "", "no JSON array"},
		{`[{"id":"1"}`, "", "no JSON array"},
		{`7`, "", "no JSON array"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a, err := p.read(&http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(c.body))})
		runtime.ReadMemStats(&after)
		must(t, err)
		got := strings.Join(slices.Sorted(maps.Keys(a.said)), " ")
		if c.unusable == "" && got != c.want || (a.unusable == "") != (c.unusable == "") || !strings.Contains(a.unusable, c.unusable) {
			t.Errorf("%.40q: got outcomes of %q, %q; want %q, %q", c.body, got, a.unusable, c.want, c.unusable)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 24<<20 {
			t.Errorf("%.40q of %d bytes took %d MiB", c.body, len(c.body), took>>20)
		}
	}
	broken := io.MultiReader(strings.NewReader(`[{"id":"1"},`), iotest.ErrReader(errors.New("reset")))
	if _, err := p.read(&http.Response{StatusCode: 200, Body: io.NopCloser(broken)}); err == nil || !strings.Contains(err.Error(), "breaks off: reset") {
		t.Errorf("got %v", err)
	}
}

// A request has up to a MiB, unless a job has more; jobs of different endpoints do not share one.
func TestParcels(t *testing.T) {
	e := &Endpoint{URL: "http://a"}
	var jobs []*queue.Delivery
	var lines [][]byte
	for _, j := range []struct {
		size int
		to   string
	}{{600 << 10, ""}, {10, "http://b"}, {300 << 10, ""}, {300 << 10, ""}, {2 << 20, ""}, {10, ""}, {20, "http://b"}} {
		jobs = append(jobs, &queue.Delivery{Job: queue.Job{Endpoint: j.to}})
		lines = append(lines, fmt.Appendf(nil, "%q", strings.Repeat("x", j.size)))
	}
	all := parcels(e, jobs, lines)
	var got [][]int
	for _, p := range all {
		got = append(got, p.at)
		if !json.Valid(p.body()) || len(p.body()) > longestBody && len(p.at) > 1 {
			t.Errorf("a body of %d bytes", len(p.body()))
		}
	}
	if want := "[[0 2] [1 6] [3] [4] [5]]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	for _, n := range []int{0, 1001} {
		e := usual(NewSecret())
		if e.Batch = n; e.Check() == nil {
			t.Errorf("a batch of %d", n)
		}
	}
}
