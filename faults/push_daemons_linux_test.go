package faults

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// A delivery is a request that an addressee received.
type delivery struct {
	id         int64
	queue, key string
	by         string // the version of the daemon's program
	at         instant.Instant
	answered   instant.Instant // 0: not while the sender still waited
}

// An addressee is an endpoint that records its requests in order.
type addressee struct {
	*httptest.Server
	answer http.HandlerFunc // called once the delivery is recorded; nil: success

	mu   sync.Mutex
	all  []delivery
	open map[string]int // unanswered deliveries, by queue and sender
}

func newAddressee(t *testing.T, answer http.HandlerFunc) *addressee {
	t.Helper()
	a := &addressee{answer: answer, open: map[string]int{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *addressee) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the server notices a closed connection only after that
	id, err := strconv.ParseInt(r.Header.Get("Webhook-Id"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d := delivery{
		id: id, queue: r.Header.Get("Dbcron-Queue"), key: r.Header.Get("Dbcron-Key"),
		by: strings.TrimPrefix(r.Header.Get("User-Agent"), "dbcron/"), at: instant.Now(),
	}
	a.mu.Lock()
	place := len(a.all)
	a.all = append(a.all, d)
	a.open[d.queue+" "+d.by]++
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.open[d.queue+" "+d.by]--
		if r.Context().Err() == nil {
			a.all[place].answered = instant.Now()
		}
	}()
	if a.answer != nil {
		a.answer(w, r)
	}
}

func (a *addressee) got() []delivery {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}

func (a *addressee) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

// holds returns the number of a sender's unanswered deliveries of a queue.
func (a *addressee) holds(queue, by string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open[queue+" "+by]
}

// A mailroom is what a test's daemons, queues and addressees share.
type mailroom struct {
	rig
	c       *queue.Client
	daemons []*daemon // all daemons so far
}

func newMailroom(t *testing.T, db *dbtest.DB, lease time.Duration) *mailroom {
	t.Helper()
	c, err := queue.New(db.DB, queue.Options{Doorbell: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	return &mailroom{rig{t: t, db: db, dir: t.TempDir(), lease: lease, grace: 10 * time.Second}, c, nil}
}

// send starts a daemon that pushes.
func (m *mailroom) send(binary, node string, args ...string) *daemon {
	m.t.Helper()
	d := m.serve(binary, node, append([]string{"--only", "push", "--push-to", "127.0.0.1"}, args...)...)
	m.daemons = append(m.daemons, d)
	return d
}

// point gives a queue an endpoint.
func (m *mailroom) point(name, url string, change func(*push.Endpoint)) {
	m.t.Helper()
	_, err := adminOf(m.c).Edit(m.t.Context(), name, func(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay = 50*time.Millisecond, 100*time.Millisecond })
	if err == nil {
		_, _, err = push.NewEndpoints(m.db.DB).Edit(m.t.Context(), name, func(e *push.Endpoint) {
			e.URL, e.Timeout = url, time.Hour
			change(e)
		})
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *mailroom) enqueue(jobs ...queue.Job) (ids []int64) {
	m.t.Helper()
	all, err := m.c.EnqueueMany(m.t.Context(), jobs)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	return ids
}

// posted maps the jobs that were certainly enqueued to when their enqueuing began.
type posted map[int64]instant.Instant

func (p posted) ids() []int64 { return slices.Sorted(maps.Keys(p)) }

// longestWait returns the longest time that a job waited for its delivery.
func (p posted) longestWait(a *addressee) (longest time.Duration) {
	seen := map[int64]bool{}
	for _, d := range a.got() {
		if began, ok := p[d.id]; ok && !seen[d.id] {
			seen[d.id] = true
			longest = max(longest, d.at.Sub(began))
		}
	}
	return longest.Round(time.Millisecond)
}

// stream enqueues jobs, n at a time, until stop is called. It continues while the database does not
// answer.
func (m *mailroom) stream(n int, every time.Duration, next func() queue.Job) (stop func() posted) {
	ended, result := make(chan struct{}), make(chan posted, 1)
	go func() {
		all := posted{}
		defer func() { result <- all }()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-m.t.Context().Done():
				return
			case <-tick.C:
			}
			jobs := make([]queue.Job, n)
			for i := range jobs {
				jobs[i] = next()
			}
			began := instant.Now()
			made, err := m.c.EnqueueMany(m.t.Context(), jobs)
			if err != nil { // they exist or not: they do not count
				continue
			}
			for _, e := range made {
				all[e.ID] = began
			}
		}
	}()
	return sync.OnceValue(func() posted { close(ended); return <-result })
}

// until waits until ok returns true.
func (m *mailroom) until(what string, ok func() bool) {
	m.t.Helper()
	for begun := instant.Now(); !ok(); {
		if wait(m.t.Context(), 10*time.Millisecond) != nil || instant.Now().Sub(begun) > patience {
			m.explain()
			m.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// explain logs hints at why jobs are left.
func (m *mailroom) explain() {
	m.t.Helper()
	ctx := context.WithoutCancel(m.t.Context())
	for _, q := range m.db.List(m.t, "SELECT name FROM {prefix}queue", nil) {
		n, err := adminOf(m.c).Count(ctx, q, 10_000)
		m.t.Logf("queue %s: %+v %v", q, n, err)
	}
	for _, table := range []string{"node", "queue_worker", "queue_block"} {
		for _, row := range m.db.List(m.t, "SELECT * FROM {prefix}"+table, nil) {
			m.t.Log(table, row)
		}
	}
	running := m.db.List(m.t, "SELECT divided, id, kind, COALESCE(job_key, '-'), state, lock_by, attempt, crashes FROM {prefix}job_running", nil)
	for _, row := range running[:min(50, len(running))] {
		m.t.Log("running", row)
	}
	for _, d := range m.daemons {
		m.t.Logf("%s: %s", d.node, d.log.String())
	}
}

// settled waits until no job is left, and fails the test if one is dead.
func (m *mailroom) settled() {
	m.t.Helper()
	m.until("no job is left", func() bool {
		var n int
		m.db.Scan(m.t, `SELECT (SELECT COUNT(*) FROM {prefix}job WHERE id > 0) + (SELECT COUNT(*) FROM {prefix}job_delayed WHERE id > 0) + (SELECT COUNT(*) FROM {prefix}job_running)`, nil, &n)
		return n == 0
	})
	if dead := m.db.List(m.t, `SELECT id, error FROM {prefix}job_dead`, nil); len(dead) > 0 {
		m.t.Errorf("%d dead letters: %v", len(dead), dead[:min(5, len(dead))])
	}
}

// delivered fails the test unless each job was delivered and answered, and those of one key one
// after the other. It returns how many jobs were delivered more than once.
func (m *mailroom) delivered(a *addressee, ids ...int64) (again int) {
	m.t.Helper()
	times, answered := map[int64]int{}, map[int64]instant.Instant{} // first answers
	last := map[string]int64{}                                      // last delivered job of each key
	problems := 0
	wrong := func(format string, args ...any) {
		m.t.Helper()
		if problems++; problems <= 10 {
			m.t.Errorf(format, args...)
		}
	}
	all := a.got()
	for _, d := range all {
		if d.answered > 0 && (answered[d.id] == 0 || d.answered < answered[d.id]) {
			answered[d.id] = d.answered
		}
	}
	for _, d := range all {
		if times[d.id]++; times[d.id] == 2 {
			again++
		}
		key := d.queue + " " + d.key
		if d.key == "" || times[d.id] > 1 {
			continue
		}
		if before := last[key]; before > d.id || before != 0 && (answered[before] == 0 || answered[before] > d.at) {
			wrong("key %s: job %d came before job %d, or before that was answered", key, d.id, before)
		}
		last[key] = d.id
	}
	for _, id := range ids {
		if answered[id] == 0 {
			wrong("job %d was delivered %d times, and not answered", id, times[id])
		}
	}
	if problems > 0 {
		m.t.Errorf("%d problems", problems)
	}
	return again
}

// lost reports whether a slow daemon lost jobs, which are then done again.
func (d *daemon) lost() bool {
	text := d.log.String()
	return strings.Contains(text, "the lease was lost") || strings.Contains(text, "a block was taken away")
}

// longest returns the longest gap between deliveries that count.
func longest(all []delivery, counts func(*delivery) bool) (gap time.Duration) {
	var last instant.Instant
	for i := range all {
		if d := &all[i]; counts(d) {
			if last != 0 {
				gap = max(gap, d.at.Sub(last))
			}
			last = d.at
		}
	}
	return gap.Round(time.Millisecond)
}

func keyed(queueName string, keys, n int) (jobs []queue.Job) {
	for i := range keys * n {
		jobs = append(jobs, queue.Job{Queue: queueName, Kind: "keyed", Key: fmt.Sprintf("key-%d", i%keys)})
	}
	return jobs
}
