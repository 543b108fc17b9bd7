package measure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/scheduler"
)

const (
	source    = "bench"
	firesSize = 500
	firesMost = 20_000
)

// fires spends a third of the time creating schedules of functions that are due at once, and then has one
// scheduler with default settings run them.
func fires(ctx context.Context, b *bed, span time.Duration) ([]Figure, error) {
	made := 0
	for begin := now(); made == 0 || begin.since() < span/3 && made < firesMost; made += firesSize {
		some := make([]scheduler.Schedule, firesSize)
		for i := range some {
			name := fmt.Sprint("bench-", made+i)
			some[i] = scheduler.Schedule{
				Name: name, Key: name, Spec: "@every 24h", Kind: "func", Command: kind,
				Policy: scheduler.Policy{FirstRun: "now"},
			}
		}
		if _, err := scheduler.Import(ctx, b.db, fmt.Sprint(source, "-", made), some, scheduler.ImportOptions{}); err != nil {
			return nil, err
		}
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	from, begin := loadNow(), now()
	var done atomic.Int64
	var first, last atomic.Pointer[mark]
	s, err := scheduler.New(b.db, scheduler.Options{
		Node: "bench", Kinds: []string{scheduler.Functions}, Grace: -1, Logger: b.quiet,
		Ended: func(string, time.Duration) {
			at := now()
			first.CompareAndSwap(nil, &at)
			last.Store(&at)
			if n := done.Add(1); n == int64(made) || n > 1 && begin.since() > 2*span/3 {
				stop()
			}
		},
	})
	if err == nil {
		err = s.Handle(kind, func(context.Context, *scheduler.Running) error { return nil })
	}
	if err != nil {
		return nil, err
	}
	if err := s.Run(running); err != nil {
		return nil, err
	}
	f := Figure{Name: "schedules", Unit: "fires", Host: from.since()}
	if n := done.Load(); n > 1 {
		f.Rate = float64(n) / time.Time(*last.Load()).Sub(time.Time(*first.Load())).Seconds()
	}
	f.Bound = b.bound(f.Host, 0)
	return []Figure{f}, nil
}
