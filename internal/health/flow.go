package health

import (
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
)

// flowMinutes is of how many minutes rates are.
const flowMinutes = 10

// FlowTime is how far back Flows looks, and a little more.
const FlowTime = (flowMinutes + 2) * time.Minute

// flowFrom is when the minutes of rates begin.
func flowFrom(now time.Time) time.Time {
	return now.Truncate(time.Minute).Add(-flowMinutes * time.Minute)
}

// A Flow is what the counters say of a queue's last minutes.
type Flow struct {
	Out float64 // jobs that ended in a minute, in the ten whole ones before now

	young float64 // jobs that ended since then, without those that were ready before
}

// Flows adds up what was done, by queue.
func Flows(minutes []queue.Minute, now time.Time) map[string]Flow {
	from, all := flowFrom(now), map[string]Flow{}
	span := now.Sub(from)
	for _, m := range minutes {
		ended := m.Done + m.Dead
		if m.Begins.Before(from) || ended == 0 {
			continue
		}
		f := all[m.Queue]
		if m.Begins.Before(now.Truncate(time.Minute)) {
			f.Out += float64(ended) / flowMinutes
		}
		waited := m.Waited / time.Duration(ended+m.Failed)
		f.young += float64(ended) * max(0, 1-float64(waited)/float64(span))
		all[m.Queue] = f
	}
	return all
}

// An Emptying is how long it takes until no job of a queue waits, if jobs come and go as in the
// last ten minutes.
type Emptying struct {
	In    time.Duration // below 0: it is not known
	More  bool          // it is more than that: not all jobs were counted
	Never bool          // as many jobs come in as are done, or more
}

// String says it in a few words.
func (e Emptying) String() string {
	switch {
	case e.Never:
		return "never"
	case e.In >= 0 && e.More:
		return "over " + plain.Span(e.In)
	}
	return plain.Span(e.In)
}

// Empty estimates when no job of a queue waits any more. It is not known of a queue that is paused.
func (d *Depth) Empty(f Flow, now time.Time) Emptying {
	in, ok := d.In(f, now)
	switch waiting := d.Waiting(); {
	case d.Limit == 0 || waiting > 0 && d.State != "active":
		return Emptying{In: -1}
	case waiting == 0:
		return Emptying{}
	case f.Out == 0 || ok && in >= f.Out:
		return Emptying{Never: true}
	case !ok: // nobody knows how many there are, but these take so long at the least
		return Emptying{In: perMinute(waiting, f.Out), More: true}
	default:
		return Emptying{In: perMinute(waiting, f.Out-in)}
	}
}

// perMinute is how long so many jobs take at a rate.
func perMinute(n int, rate float64) time.Duration {
	const longest = 365 * 24 * time.Hour
	return time.Duration(min(float64(n)/rate*float64(time.Minute), float64(longest)))
}

// In estimates how many jobs came into a queue in a minute, over the minutes of Flows: those that
// are there and have an id of that time, and those that have ended since, but for the share that
// had waited from before. It is exact where all wait equally long. ok is false if there are more
// jobs than were counted.
func (d *Depth) In(f Flow, now time.Time) (perMinute float64, ok bool) {
	if max(d.Ready, d.Delayed, d.Running, d.Dead) >= d.Limit {
		return 0, d.Limit == 0 // nothing was counted of a queue that has had no job
	}
	return (float64(d.Recent) + f.young) / now.Sub(flowFrom(now)).Minutes(), true
}
