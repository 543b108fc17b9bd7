// Package measure benchmarks dbcron on a database: how long enqueueing takes, how fast jobs drain, how
// soon they begin, and what locks and schedules cost. It works in tables that the caller has created for
// it alone, and leaves rows in them.
package measure

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
)

// MinSpan is the shortest duration that Run accepts.
const MinSpan = time.Second

// Options configures Run.
type Options struct {
	// Span is the approximate total duration, at least MinSpan.
	Span time.Duration

	// Begin is called before each step with its name and the elapsed part of Span. May be nil.
	Begin func(step string, over time.Duration)
}

// A Figure is the result of one step.
type Figure struct {
	Name    string        // such as "enqueue"
	Callers int           // concurrent goroutines; 0: does not apply
	Rate    float64       // Unit per second; 0: only times were measured
	Unit    string        // what Rate counts, such as "jobs"
	P50     time.Duration // median duration of a call; 0: not measured
	P99     time.Duration
	Host    float64 // busy share of this host's processors, 0 to 1; negative: unknown
	Bound   string  // what limits the figure, in words
}

// A bed is what the steps share: two pools, as two processes would have them.
type bed struct {
	producer, worker *queue.Client
	locks            *lock.Locker
	db               *dialect.DB
	quiet            *slog.Logger
	read             time.Duration // of one row by its key: a round trip
	commit           time.Duration // what a commit adds to that
}

const (
	queueName = "bench"
	kind      = "nothing"
)

// payload has 100 bytes, as for the figures in docs/benchmarks.md.
var payload = []byte(fmt.Sprintf(`{"text":"%0*d"}`, 100-len(`{"text":""}`), 0))

// A step measures one thing for about the given time, which is a part of Options.Span.
type step struct {
	name string
	part int // its weight among all steps
	run  func(ctx context.Context, b *bed, span time.Duration) ([]Figure, error)
}

var steps = []step{
	{"reading a row", 2, roundTrip},
	{"enqueue, 1 caller", 6, enqueueAlone},
	{"enqueue, 32 callers", 8, enqueueTogether},
	{"bulk enqueue and drain", 16, drain},
	{"latency", 10, latency},
	{"locks, 1 caller", 4, lockAlone},
	{"locks, 16 callers", 4, lockTogether},
	{"schedules", 10, fires},
}

// Run runs all measurements on the database of two pools, which must have dbcron's tables.
func Run(ctx context.Context, producer, worker *dialect.DB, opt Options) ([]Figure, error) {
	if opt.Span < MinSpan {
		return nil, fmt.Errorf("%v is too short to measure anything; use %v or more", opt.Span, MinSpan)
	}
	b, err := newBed(ctx, producer, worker)
	if err != nil {
		return nil, err
	}
	parts := 0
	for _, s := range steps {
		parts += s.part
	}
	var all []Figure
	var over time.Duration
	for _, s := range steps {
		if opt.Begin != nil {
			opt.Begin(s.name, over)
		}
		span := opt.Span * time.Duration(s.part) / time.Duration(parts)
		figures, err := s.run(ctx, b, span)
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		if err != nil {
			return all, fmt.Errorf("measuring %s: %w", s.name, err)
		}
		all = append(all, figures...)
		over += span
	}
	return all, nil
}

func newBed(ctx context.Context, producer, worker *dialect.DB) (*bed, error) {
	b := &bed{db: worker, quiet: slog.New(slog.NewTextHandler(io.Discard, nil))}
	var err error
	if b.producer, err = queue.New(producer, queue.Options{Node: "bench", Logger: b.quiet}); err != nil {
		return nil, err
	}
	if b.worker, err = queue.New(worker, queue.Options{Node: "bench", Logger: b.quiet}); err != nil {
		return nil, err
	}
	if b.locks, err = lock.New(producer, lock.Options{Owner: "bench", Logger: b.quiet}); err != nil {
		return nil, err
	}
	_, err = b.producer.Enqueue(ctx, b.job()) // creates the queue
	return b, err
}

func (b *bed) job() queue.Job { return queue.Job{Queue: queueName, Kind: kind, Payload: payload} }

// calls runs call repeatedly in so many goroutines for the given time, and at least once in each. It
// returns the duration of each call, shortest first, and the total duration.
func calls(ctx context.Context, callers int, span time.Duration,
	do func(ctx context.Context, caller int) error,
) (took []time.Duration, all time.Duration, err error) {
	each := make([][]time.Duration, callers)
	errs := make([]error, callers)
	var group sync.WaitGroup
	begin := now()
	for i := range callers {
		group.Go(func() {
			for first := true; first || begin.since() < span && ctx.Err() == nil; first = false {
				at := now()
				if errs[i] = do(ctx, i); errs[i] != nil {
					return
				}
				each[i] = append(each[i], at.since())
			}
		})
	}
	group.Wait()
	all = begin.since()
	for _, err := range errs {
		if err != nil {
			return nil, all, err
		}
	}
	took = slices.Concat(each...)
	slices.Sort(took)
	return took, all, ctx.Err()
}

// pause waits, unless the time is over already.
func pause(ctx context.Context, d time.Duration) error {
	if !pace.Sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// called makes a figure from the durations of calls.
func called(name, unit string, callers int, took []time.Duration, all time.Duration, host float64) Figure {
	return Figure{
		Name: name, Callers: callers, Unit: unit, Rate: float64(len(took)) / all.Seconds(),
		P50: quantile(took, 0.5), P99: quantile(took, 0.99), Host: host,
	}
}

// quantile returns a quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// busyFrom is the busy share from which the processors count as the limit.
const busyFrom = 0.85

// bound says what limits concurrent work whose calls commit the given number of statements; 0 means that
// many calls share a commit.
func (b *bed) bound(host float64, statements int) string {
	switch {
	case host >= busyFrom:
		return fmt.Sprintf("this host's %d processors", runtime.NumCPU())
	case statements == 0:
		return "the database"
	case b.commit > b.read:
		return fmt.Sprintf("commits, of %v each", rounded(b.commit))
	}
	return fmt.Sprintf("round trips, of %v each", rounded(b.read))
}

// boundAlone says what takes a single caller's time, whose calls send the given number of statements one
// after the other. What a statement takes beyond reading a row is its commit.
func (b *bed) boundAlone(f *Figure, statements int) string {
	trips := min(f.P50, time.Duration(statements)*b.read)
	switch {
	case f.Host >= busyFrom:
		return b.bound(f.Host, statements)
	case f.P50-trips > trips:
		return fmt.Sprintf("commits: %v of %v", rounded(f.P50-trips), rounded(f.P50))
	}
	return fmt.Sprintf("round trips: %v of %v", rounded(trips), rounded(f.P50))
}

// rounded rounds to three digits, which is more than the figures are worth.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
