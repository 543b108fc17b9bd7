package health

import (
	"math"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

func TestFlows(t *testing.T) {
	now := dbtest.Start.Add(30 * time.Second)
	minute := func(ago, done, dead int, waited time.Duration) admin.Minute {
		n := done + dead
		return admin.Minute{Begins: dbtest.Start.Add(-time.Duration(ago) * time.Minute), Queue: "mail", Done: done, Dead: dead, Waited: time.Duration(n) * waited}
	}
	const span = 10.5 // minutes that are looked at
	for name, c := range map[string]struct {
		minutes []admin.Minute
		d       Depth
		out, in float64
		unknown bool
	}{
		"nothing":              {d: Depth{Counts: admin.Counts{Limit: 10}}},
		"no job ever":          {},
		"done at once":         {[]admin.Minute{minute(1, 90, 10, 0), minute(11, 7, 0, 0)}, Depth{Counts: admin.Counts{Limit: 10}}, 10, 100 / span, false},
		"this minute":          {[]admin.Minute{minute(0, 21, 0, 0)}, Depth{Counts: admin.Counts{Limit: 10}}, 0, 2, false},
		"nothing done":         {nil, Depth{Counts: admin.Counts{Ready: 9, Limit: 10}, Recent: 21}, 0, 2, false},
		"from before":          {[]admin.Minute{minute(5, 100, 0, time.Hour)}, Depth{Counts: admin.Counts{Ready: 9, Limit: 10}}, 10, 0, false},
		"half are from before": {[]admin.Minute{minute(5, 100, 0, 315*time.Second)}, Depth{Counts: admin.Counts{Ready: 9, Limit: 10}, Recent: 55}, 10, 10, false},
		"not counted":          {[]admin.Minute{minute(5, 100, 0, 0)}, Depth{Counts: admin.Counts{Delayed: 10, Limit: 10}}, 10, 0, true},
	} {
		f := Flows(c.minutes, now)["mail"]
		in, ok := c.d.In(f, now)
		if math.Abs(f.Out-c.out) > 1e-9 || math.Abs(in-c.in) > 1e-9 || ok == c.unknown {
			t.Errorf("%s: got %v out and %v in, %v", name, f.Out, in, ok)
		}
	}
}

// How long it takes until a queue is empty, by what comes in and what ends.
func TestEmpty(t *testing.T) {
	now := dbtest.Start.Add(30 * time.Second)
	rate := func(out int) []admin.Minute { // of jobs that had waited for long, so that none of them came in meanwhile
		return []admin.Minute{{Begins: dbtest.Start.Add(-time.Minute), Queue: "mail", Done: 21 * out / 2, Waited: time.Duration(21*out/2) * time.Hour}}
	}
	depth := func(ready, recent int) Depth {
		return Depth{Queue: admin.Queue{Name: "mail", State: "active"}, Counts: admin.Counts{Ready: ready, Limit: 100}, Recent: recent, Age: time.Hour, Lag: time.Hour}
	}
	fresh := depth(2, 220)
	fresh.Age, fresh.Lag = time.Second, time.Second
	held := depth(2, 0)
	held.Lag = 0
	paused := depth(5, 0)
	paused.State = "paused"
	for name, c := range map[string]struct {
		d       Depth
		minutes []admin.Minute
		want    string
	}{
		"nothing waits":       {depth(0, 0), nil, "0µs"},
		"none is done":        {depth(5, 0), nil, "never"},
		"none comes in":       {depth(60, 0), rate(20), "3m"},
		"half as many come":   {depth(60, 105), rate(20), "6m"},
		"as many come":        {depth(60, 210), rate(20), "never"},
		"more than counted":   {depth(100, 100), rate(20), "over 5m"},
		"more, and none done": {depth(100, 100), nil, "never"},
		"no backlog":          {fresh, rate(20), "6s"},
		"no backlog, no rate": {fresh, nil, "–"},
		"all are held":        {held, nil, "–"},
		"paused":              {paused, rate(20), "–"},
		"not counted":         {Depth{}, nil, "–"},
	} {
		if got := c.d.Empty(Flows(c.minutes, now)["mail"], now).String(); got != c.want {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
	}
}
