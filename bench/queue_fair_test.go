package bench

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// tenants is package queue as a peer whose jobs have tenants, in a queue that is fair or not.
type tenants struct {
	*ours
	n    int // how many
	fair bool
}

func (o *tenants) set(t *testing.T) {
	t.Helper()
	if _, err := operator(t, o.bed).Edit(t.Context(), "default", func(q *admin.Queue) { q.Fair = o.fair }); err != nil {
		t.Fatal(err)
	}
}

// operator returns an operator's client.
func operator(t *testing.T, b *bed) *admin.Client {
	t.Helper()
	a, err := admin.New(open(t, b.URL, 2), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (o *tenants) many(ctx context.Context, first, n int) error {
	batch := make([]queue.Job, n)
	for i := range batch {
		if batch[i] = job(first + i); o.n > 0 {
			batch[i].Tenant = fmt.Sprint("tenant-", (first+i)%o.n)
		}
	}
	_, err := o.c.EnqueueMany(ctx, batch)
	return err
}

// TestQueueFairDrain prints what it costs to do the jobs of a fair queue: of one tenant, and of ten thousand.
func TestQueueFairDrain(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		ways := []*tenants{
			{newOurs(t, b, "not fair, no tenants", queue.WorkerOptions{}), 0, false},
			{newOurs(t, b, "not fair, 10000 tenants", queue.WorkerOptions{}), 10_000, false},
			{newOurs(t, b, "fair, 1 tenant", queue.WorkerOptions{}), 1, true},
			{newOurs(t, b, "fair, 10000 tenants", queue.WorkerOptions{}), 10_000, true},
		}
		figures := make([]figure, len(ways))
		const rounds = 3
		for round := range rounds {
			for i := range ways {
				if round%2 == 1 {
					i = len(ways) - 1 - i
				}
				ways[i].set(t)
				v := drain(t, ways[i], *jobs)
				t.Logf("%s: %.0f", ways[i], v)
				figures[i] = figure{ways[i].String(), figures[i].value + v/rounds}
			}
		}
		report(t, b, fmt.Sprintf("drain of %d", *jobs), figures)
	})
}

var floodChart = flag.String("flood-chart", "", "the file to draw into how long small tenants wait, for TestQueueFlood on one engine")

// A wait is how long a job of a small tenant has waited.
type wait struct{ at, long time.Duration } // at: since the flood began

// TestQueueFlood prints how long the jobs of small tenants wait, of which one comes ten times a second, while another tenant
// enqueues -backlog jobs at once: in a queue that is fair and in one that is not. A job takes two milliseconds, and there are 32
// at a time.
func TestQueueFlood(t *testing.T) {
	const slots, takes, every = 32, 2 * time.Millisecond, 100 * time.Millisecond
	queues(t, func(t *testing.T, b *bed) {
		lines := map[bool][]wait{}
		for _, fair := range []bool{false, true} {
			o := &tenants{newOurs(t, b, "flood", queue.WorkerOptions{Concurrency: slots}), 1, fair}
			o.set(t)
			var mu sync.Mutex
			since, waits := map[int64]time.Time{}, []wait{}
			var flood time.Time
			var done atomic.Int64
			stop := o.work(t, func(_ context.Context, id int64) {
				mu.Lock()
				if at, is := since[id]; is {
					waits = append(waits, wait{at.Sub(flood), time.Since(at)})
				}
				mu.Unlock()
				time.Sleep(takes)
				done.Add(1)
			})
			time.Sleep(time.Second)
			flood = time.Now()
			sent := make(chan error, 1)
			go func() {
				var err error
				for first := 0; first < *backlog && err == nil; first += 1000 {
					err = o.many(t.Context(), first, min(1000, *backlog-first))
				}
				sent <- err
			}()
			// Until a while after what has been enqueued by then is done.
			small, over := 0, false
			for quiet := 0; quiet < 20 && small < 10_000; small++ {
				at := time.Now()
				mu.Lock()
				e, err := o.c.Enqueue(t.Context(), queue.Job{Kind: "noop", Payload: payload(small), Tenant: fmt.Sprint("small-", small%100)})
				since[e.ID] = at
				n := len(waits)
				mu.Unlock()
				if err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-sent:
					if over = true; err != nil {
						t.Fatal(err)
					}
				default:
				}
				if quiet++; !over || n < small-2 || int(done.Load()) < *backlog {
					quiet = 0
				}
				time.Sleep(every - time.Since(at))
			}
			mu.Lock()
			took := time.Since(flood)
			lines[fair] = slices.Clone(waits)
			sorted := slices.SortedFunc(slices.Values(waits), func(a, b wait) int { return cmp.Compare(a.long, b.long) })
			t.Logf("%-8s fair=%-5t a flood of %d, done after %v: %d jobs of small tenants waited: median %v, 99 %% %v, longest %v", b.Dialect.Name, fair,
				*backlog, took.Round(time.Second), len(sorted), sorted[len(sorted)/2].long.Round(time.Millisecond),
				sorted[len(sorted)*99/100].long.Round(time.Millisecond), sorted[len(sorted)-1].long.Round(time.Millisecond))
			mu.Unlock()
			stop()
			o.wipe(t)
		}
		if *floodChart != "" {
			if err := os.WriteFile(*floodChart, []byte(drawFlood(lines)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// drawFlood draws how long each job waited, on a logarithmic scale, over the time at which it came.
func drawFlood(lines map[bool][]wait) string {
	const width, left, plot, top, height, decades = 760, 70, 540, 30, 240, 5 // 1 ms to 100 s
	end := time.Duration(1)
	for _, all := range lines {
		for _, w := range all {
			end = max(end, w.at)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`, width, top+height+40)
	b.WriteString("\n<style>text{fill:#1f2328}line{stroke:#d0d7de}polyline{fill:none;stroke-width:1.5}.no{stroke:#bf3989;fill:#bf3989}.yes{stroke:#0969da;fill:#0969da}" +
		"polyline.no,polyline.yes{fill:none}text.no,text.yes{stroke:none}@media(prefers-color-scheme:dark){text{fill:#e6edf3}line{stroke:#3d444d}}</style>\n")
	fmt.Fprintf(&b, `<text x="0" y="14" font-weight="bold">how long the job of a small customer waits, by when it comes</text>`+"\n")
	for i, label := range []string{"1 ms", "10 ms", "0.1 s", "1 s", "10 s", "100 s"} {
		y := top + height - height*i/decades
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d"/><text x="0" y="%d">%s</text>`+"\n", left, y, left+plot, y, y+4, label)
	}
	for _, part := range []int{0, 1, 2} {
		fmt.Fprintf(&b, `<text x="%d" y="%d">%.0f s</text>`+"\n", left+plot*part/2-10, top+height+20, (end * time.Duration(part) / 2).Seconds())
	}
	for i, one := range []struct {
		fair       bool
		class, say string
	}{{false, "no", "oldest first"}, {true, "yes", "fair"}} {
		var points []string
		for _, w := range slices.SortedFunc(slices.Values(lines[one.fair]), func(a, b wait) int { return cmp.Compare(a.at, b.at) }) {
			high := math.Log10(max(1, float64(w.long.Microseconds())/1000)) / decades
			points = append(points, fmt.Sprintf("%d,%d", left+int(int64(plot)*int64(w.at)/int64(end)), top+height-int(high*height)))
		}
		fmt.Fprintf(&b, `<polyline class="%s" points="%s"/><text class="%s" x="%d" y="%d">%s</text>`+"\n",
			one.class, strings.Join(points, " "), one.class, left+plot+12, top+14+20*i, one.say)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
