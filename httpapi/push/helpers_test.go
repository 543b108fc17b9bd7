package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

func TestMain(m *testing.M) {
	dbtest.Parallel("6")
	dbtest.Main(m)
}

// longWait is for what must happen, on a slow machine.
const longWait = 3 * time.Minute

func each(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, f, (*testing.T).Parallel)
}

// memory is each on the engines for what happens in memory: see dbtest.Memory.
func memory(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Memory.Each(t, f, (*testing.T).Parallel)
}

// Short names of dbtest's.
var must, eventually, quiet = dbtest.Must, dbtest.Eventually, dbtest.Quiet

func client(t *testing.T, db *dbtest.DB) *queue.Client {
	t.Helper()
	c, err := queue.New(db.DB, queue.Options{Blocks: 2, Logger: quiet()})
	must(t, err)
	return c
}

// local allows what tests listen on.
func local(t *testing.T) *Hosts {
	t.Helper()
	h, err := ParseHosts([]string{"127.0.0.1", "::1"})
	must(t, err)
	return h
}

// start runs a dispatcher, which loses its lease on no machine, and returns a function that
// stops it and waits for its end.
func start(t *testing.T, db *dbtest.DB, opt Options) (stop func()) {
	t.Helper()
	_, stop = begin(t, db, opt, 0)
	return stop
}

// begin is start with the given first pause of the dispatcher; 0: as usual.
func begin(t *testing.T, db *dbtest.DB, opt Options, pause time.Duration) (d *Dispatcher, stop func()) {
	t.Helper()
	opt.Lease = cmp.Or(opt.Lease, 10*time.Minute)
	opt.Grace = cmp.Or(opt.Grace, 2*time.Second)
	opt.Logger = cmp.Or(opt.Logger, quiet())
	if opt.Hosts == nil {
		opt.Hosts = local(t)
	}
	d, err := New(db.DB, opt)
	must(t, err)
	d.throttle.first, d.reporter.every = pause, 100*time.Millisecond
	d.locks, err = lock.New(db.DB, lock.Options{TTL: time.Minute, Logger: opt.Logger}) // none is killed here, and a busy machine loses shorter ones
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(longWait):
			t.Error("it does not end")
		}
	})
	t.Cleanup(stop)
	return d, stop
}

// point gives a queue an endpoint, whose jobs are tried again soon.
func point(t *testing.T, db *dbtest.DB, c *queue.Client, name, url string, change func(*Endpoint)) Endpoint {
	t.Helper()
	_, err := adminOf(c).Edit(t.Context(), name, func(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay = time.Millisecond, 5*time.Millisecond })
	must(t, err)
	e, _, err := NewEndpoints(db.DB).Edit(t.Context(), name, func(e *Endpoint) {
		e.URL = url
		if change != nil {
			change(e)
		}
	})
	must(t, err)
	return e
}

func enqueue(t *testing.T, c *queue.Client, j queue.Job) int64 {
	t.Helper()
	j.Queue, j.Kind = cmp.Or(j.Queue, "q"), cmp.Or(j.Kind, "k")
	e, err := c.Enqueue(t.Context(), j)
	must(t, err)
	return e.ID
}

// becomes waits for a job's state; "" is that it is done.
func becomes(t *testing.T, c *queue.Client, id int64, state admin.State) (i admin.Job) {
	t.Helper()
	eventually(t, fmt.Sprintf("job %d is %q", id, state), func() bool {
		var err error
		if i, err = adminOf(c).Job(t.Context(), "q", id); errors.Is(err, queue.ErrNotFound) {
			return state == ""
		}
		must(t, err)
		return i.State == state
	})
	return i
}

// A got is a request that came to a receiver.
type got struct {
	header http.Header
	body   string
}

// A receiver is an endpoint that records its requests.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	all []got
}

// receive serves an endpoint until the test ends. answer is called after a request was noted;
// nil: all is well.
func receive(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil || q.Method != http.MethodPost {
			t.Errorf("%s: %v", q.Method, err)
		}
		r.mu.Lock()
		r.all = append(r.all, got{q.Header, string(body)})
		r.mu.Unlock()
		if answer != nil {
			answer(w, q)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]got(nil), r.all...)
}

// wait waits until there were n requests.
func (r *receiver) wait(t *testing.T, n int) []got {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests", n), func() bool { return len(r.got()) >= n })
	return r.got()
}

// patient runs a dispatcher that pauses a failing endpoint without Retry-After for about an
// hour.
func patient(t *testing.T, db *dbtest.DB) *Dispatcher {
	t.Helper()
	d, _ := begin(t, db, Options{}, time.Hour)
	return d
}

// ended returns a context that has ended.
func ended(t *testing.T, why error) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	return ctx
}

// adminOf returns an admin client for a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}
