package faults

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

var (
	soakHours = flag.Float64("hours", 0, "how long the soak takes, on all engines at once")
	soakChart = flag.String("chart", "", "the file to draw the soak's chart into")
)

const (
	soakSamples = 120 // of each engine
	soakEvery   = 200 * time.Millisecond
	soakJobs    = 10 // enqueued each time: two cores bear that on four engines at once
)

// soakTables are those whose rows are counted.
var soakTables = []string{
	"job", "job_running", "job_delayed", "job_dead", "job_done", "job_unique", "job_group", "job_member", "queue_block", "queue_worker",
	"run", "node", "lock", "audit",
}

// A sample is what the process and the tables take at one time, and how long jobs have waited since the one before.
type sample struct {
	At         time.Duration
	Memory     int // bytes of the heap that are in use after a collection
	Goroutines int
	Rows       int           // of all tables
	P50, P99   time.Duration // from Enqueue to the handler
	Jobs       int           // enqueued until then
}

// TestSoak has one process for each engine enqueue, work, lock and run schedules for a long time, all of them at once. Neither
// memory, goroutines and tables nor the time that jobs wait may grow: it compares the last quarter of the time with the second one.
//
// It runs only with -hours: see "make soak".
func TestSoak(t *testing.T) {
	if *soakHours == 0 {
		t.Skip("it takes an hour: make soak")
	}
	var mu sync.Mutex
	lines := map[string][]sample{}
	t.Cleanup(func() { // when all engines are through
		if *soakChart != "" && !t.Failed() {
			if err := os.WriteFile(*soakChart, []byte(drawSoak(lines)), 0o644); err != nil { //nolint:gosec // a picture for the docs
				t.Error(err)
			}
		}
	})
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		samples := watchSoak(t, start(t, "soak", part{URL: db.URL, Span: soakSpan()}))
		judge(t, samples)
		mu.Lock()
		defer mu.Unlock()
		lines[db.Engine] = samples
	}, (*testing.T).Parallel)
}

func soakSpan() time.Duration { return time.Duration(*soakHours * float64(time.Hour)) }

// watchSoak returns the samples that a process says.
func watchSoak(t *testing.T, c *child) (all []sample) {
	t.Helper()
	for range soakSamples {
		select {
		case said := <-c.saying("sample"):
			var one sample
			if err := json.Unmarshal([]byte(strings.Join(said, " ")), &one); err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		case <-c.done:
			t.Fatal("the process has ended")
		case <-time.After(soakSpan()/soakSamples + 10*time.Minute):
			t.Fatal("it takes no samples any more")
		}
	}
	return all
}

// A soak is what one process does.
type soak struct {
	db   *dialect.DB
	span time.Duration

	mu    sync.Mutex
	waits []time.Duration // since the last sample
	sent  map[int64]instant.Instant
	jobs  int
}

func init() { roles["soak"] = playSoak }

func playSoak(ctx context.Context, a *actor) error {
	s := &soak{db: a.db, span: a.Span, sent: map[int64]instant.Instant{}}
	for _, part := range []func(context.Context) error{s.produce, s.work, s.schedule, s.lock, s.lock} {
		go func() {
			if err := part(ctx); err != nil {
				say("error", err)
			}
		}()
	}
	begun := instant.Now()
	for i := range soakSamples {
		if err := wait(ctx, s.span*time.Duration(i+1)/soakSamples-instant.Now().Sub(begun)); err != nil {
			return err
		}
		one, err := s.sample(ctx, instant.Now().Sub(begun))
		if err != nil {
			return err
		}
		text, err := json.Marshal(one)
		if err != nil {
			return err
		}
		say("sample", string(text))
	}
	<-ctx.Done() // until the test ends it
	return nil
}

// produce enqueues jobs of all kinds at a steady rate, which the worker keeps up with.
func (s *soak) produce(ctx context.Context) error {
	c, err := queue.New(s.db, queue.Options{})
	if err != nil {
		return err
	}
	_, err = adminOf(c).Edit(ctx, "soak", func(q *admin.Queue) { q.RetryDelay, q.KeepDone = 100*time.Millisecond, 30*time.Second })
	for n := 0; err == nil; n++ {
		jobs := make([]queue.Job, soakJobs)
		for i := range jobs {
			jobs[i] = queue.Job{Queue: "soak", Kind: "plain"}
			switch i {
			case 0, 1, 2, 3:
				jobs[i].Key = fmt.Sprint("key-", (n+i)%100)
			case 4:
				jobs[i].Kind = "flaky"
			case 5:
				jobs[i].Delay = time.Second
			case 6:
				jobs[i].Unique = fmt.Sprint("unique-", n)
			}
		}
		at := instant.Now()
		var ids []queue.Enqueued
		if ids, err = c.EnqueueMany(ctx, jobs); err != nil {
			break
		}
		s.mu.Lock()
		for i, e := range ids {
			if jobs[i].Kind == "plain" && jobs[i].Delay == 0 {
				s.sent[e.ID] = at
			}
		}
		s.jobs += len(ids)
		s.mu.Unlock()
		if n%10 == 0 {
			_, _, err = c.EnqueueGroup(ctx, queue.Group{Keep: 30 * time.Second, Callback: &queue.Job{Queue: "soak", Kind: "plain"}},
				queue.Job{Queue: "soak", Kind: "plain"}, queue.Job{Queue: "soak", Kind: "plain"})
		}
		if err == nil {
			err = wait(ctx, soakEvery)
		}
	}
	return err
}

func (s *soak) work(ctx context.Context) error {
	c, err := queue.New(s.db, queue.Options{})
	if err != nil {
		return err
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"soak"}, Concurrency: 16})
	if err != nil {
		return err
	}
	if err := w.Handle("plain", func(_ context.Context, d *queue.Delivery) error {
		s.begins(d.ID)
		return nil
	}); err != nil {
		return err
	}
	if err := w.Handle("flaky", func(_ context.Context, d *queue.Delivery) error {
		if d.Attempt == 1 {
			return errors.New("the first attempt fails")
		}
		return nil
	}); err != nil {
		return err
	}
	return w.Run(ctx)
}

// begins notes how long a job has waited. One that begins before Enqueue has returned does not count.
func (s *soak) begins(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.sent[id]; known {
		s.waits = append(s.waits, instant.Now().Sub(at))
		delete(s.sent, id)
	}
}

func (s *soak) schedule(ctx context.Context) error {
	daemon, err := scheduler.New(s.db, scheduler.Options{Kinds: []string{scheduler.Functions}})
	if err != nil {
		return err
	}
	if err := daemon.Handle("tick", func(context.Context, *scheduler.Running) error { return nil }); err != nil {
		return err
	}
	for i := range 10 {
		one := scheduler.Schedule{
			Name: fmt.Sprint("tick-", i), Spec: "@every 1s", Kind: "func", Command: "tick", Policy: scheduler.Policy{KeepRuns: 5},
		}
		if err := scheduler.Add(ctx, s.db, one); err != nil {
			return err
		}
	}
	return daemon.Run(ctx)
}

// lock takes and releases a lock that another goroutine contends for.
func (s *soak) lock(ctx context.Context) error {
	locker, err := lock.New(s.db, lock.Options{})
	for err == nil {
		err = locker.Do(ctx, "soak", func(ctx context.Context, _ *lock.Lease) error { return wait(ctx, 100*time.Millisecond) })
	}
	return err
}

// sample takes a sample.
func (s *soak) sample(ctx context.Context, at time.Duration) (one sample, err error) {
	one = sample{At: at, Goroutines: runtime.NumGoroutine()}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	one.Memory = int(m.HeapInuse)
	for _, name := range soakTables {
		var n int
		if err := s.db.Pool().QueryRowContext(ctx, "SELECT COUNT(*) FROM dbcron_"+name).Scan(&n); err != nil {
			return one, err
		}
		one.Rows += n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.waits)
	if n := len(s.waits); n > 0 {
		one.P50, one.P99 = s.waits[n/2], s.waits[n*99/100]
	}
	s.waits, one.Jobs = nil, s.jobs
	for id, sent := range s.sent { // it began before it was known
		if instant.Now().Sub(sent) > time.Minute {
			delete(s.sent, id)
		}
	}
	return one, nil
}

// middleOf is the median of a figure over a part of the samples.
func middleOf(part []sample, figure func(sample) int) int {
	all := make([]int, len(part))
	for i := range part {
		all[i] = figure(part[i])
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// judge compares the last quarter of the time with the second one.
func judge(t *testing.T, all []sample) {
	t.Helper()
	n := len(all)
	sums := map[string]int{"jobs": all[n-1].Jobs}
	for _, f := range soakFigures {
		before, after := middleOf(all[n/4:n/2], f.of), middleOf(all[3*n/4:], f.of)
		sums[f.name+" before"], sums[f.name+" after"] = before, after
		if after > before+before/2+f.slack {
			t.Errorf("%s has grown from %d to %d", f.name, before, after)
		}
	}
	figures(t, sums)
	t.Logf("%d jobs: %v", all[n-1].Jobs, sums)
}

// soakFigures are what must not grow by more than half and some slack.
var soakFigures = []struct {
	name  string
	unit  string
	scale float64
	slack int
	of    func(sample) int
}{
	{"memory", "MiB of heap after a collection", 1 << 20, 4 << 20, func(s sample) int { return s.Memory }},
	{"goroutines", "goroutines", 1, 10, func(s sample) int { return s.Goroutines }},
	{"rows", "rows of all tables", 1, 500, func(s sample) int { return s.Rows }},
	{"p50 µs", "ms from Enqueue to the handler, median", 1000, 10_000, func(s sample) int { return int(s.P50.Microseconds()) }},
	{"p99 µs", "ms from Enqueue to the handler, 99 of 100", 1000, 100_000, func(s sample) int { return int(s.P99.Microseconds()) }},
}

// drawSoak draws each figure over the time, with a line for each engine.
func drawSoak(lines map[string][]sample) string {
	const width, plot, left, height, row = 760, 560, 60, 110, 160
	names := make([]string, 0, len(lines))
	for name := range lines {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`, width, row*len(soakFigures)+10)
	b.WriteString("\n<style>text{fill:#1f2328}polyline{fill:none;stroke-width:1.5}line{stroke:#d0d7de}.c0{stroke:#0969da;fill:#0969da}.c1{stroke:#bf3989;fill:#bf3989}" +
		".c2{stroke:#9a6700;fill:#9a6700}.c3{stroke:#1a7f37;fill:#1a7f37}polyline.c0,polyline.c1,polyline.c2,polyline.c3{fill:none}text.c0,text.c1,text.c2,text.c3{stroke:none}" +
		"@media(prefers-color-scheme:dark){text{fill:#e6edf3}line{stroke:#3d444d}}</style>\n")
	for i, f := range soakFigures {
		y, most := i*row+30, 1
		for _, all := range lines {
			for _, one := range all {
				most = max(most, f.of(one))
			}
		}
		fmt.Fprintf(&b, `<text x="0" y="%d" font-weight="bold">%s</text><text x="0" y="%d">%.3g</text><text x="0" y="%d">0</text>`+"\n",
			y-12, f.unit, y+10, float64(most)/f.scale, y+height)
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d"/><line x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n",
			left, y+height, left+plot, y+height, left, y, left, y+height)
		for c, name := range names {
			all := lines[name]
			end := max(1, all[len(all)-1].At)
			var points []string
			for _, one := range all {
				points = append(points, fmt.Sprintf("%d,%d", left+int(int64(plot)*int64(one.At)/int64(end)), y+height-height*f.of(one)/most))
			}
			fmt.Fprintf(&b, `<polyline class="c%d" points="%s"/><text class="c%d" x="%d" y="%d">%s</text>`+"\n",
				c%4, strings.Join(points, " "), c%4, left+plot+12, y+14+18*c, name)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
