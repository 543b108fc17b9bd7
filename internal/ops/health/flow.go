package health

import (
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
)

// flowMinutes is the number of minutes over which rates are averaged.
const flowMinutes = 10

// FlowTime is slightly more than the time over which Flows averages.
const FlowTime = (flowMinutes + 2) * time.Minute

// flowFrom is when the averaged minutes begin.
func flowFrom(now time.Time) time.Time {
	return now.Truncate(time.Minute).Add(-flowMinutes * time.Minute)
}

// A Flow is a queue's throughput in the last minutes.
type Flow struct {
	Out float64 // jobs per minute that ended in the last ten whole minutes

	ended int     // jobs, in those and since then
	young float64 // jobs that ended since then and were enqueued since then
}

// Flows sums up what was done, by queue.
func Flows(minutes []admin.Minute, now time.Time) map[string]Flow {
	from, all := flowFrom(now), map[string]Flow{}
	span := now.Sub(from)
	for _, m := range minutes {
		ended := m.Done + m.Dead
		if m.Begins.Before(from) || ended == 0 {
			continue
		}
		f := all[m.Queue]
		f.ended += ended
		if m.Begins.Before(now.Truncate(time.Minute)) {
			f.Out += float64(ended) / flowMinutes
		}
		waited := m.Waited / time.Duration(ended+m.Failed)
		f.young += float64(ended) * max(0, 1-float64(waited)/float64(span))
		all[m.Queue] = f
	}
	return all
}

// An Emptying is the time until a queue is drained, if jobs come and go as in the last ten
// minutes.
type Emptying struct {
	In    time.Duration // negative: unknown
	More  bool          // at least In: not all jobs were counted
	Never bool          // jobs come in at least as fast as they are done
}

// String describes it in a few words.
func (e Emptying) String() string {
	switch {
	case e.Never:
		return "never"
	case e.In >= 0 && e.More:
		return "over " + plain.Span(e.In)
	}
	return plain.Span(e.In)
}

// Empty estimates when a queue has no waiting jobs any more, from the jobs that came and ended
// in the same minutes. Jobs that have waited for less than a minute are no backlog, nor are those that are held: their
// number at one moment says nothing about a trend. The result is unknown for a paused queue.
func (d *Depth) Empty(f Flow, now time.Time) Emptying {
	in, ok := d.In(f, now)
	out := f.rate(now)
	backlog := d.Lag >= behindAfter
	switch waiting := d.Ready; {
	case d.Limit == 0 || waiting > 0 && (d.State != "active" || out == 0 && !backlog):
		return Emptying{In: -1}
	case waiting == 0:
		return Emptying{}
	case out == 0 || ok && in >= out && backlog:
		return Emptying{Never: true}
	case !ok: // their number is unknown, but these take at least so long
		return Emptying{In: perMinute(waiting, out), More: true}
	case in >= out:
		return Emptying{In: perMinute(waiting, out)}
	default:
		return Emptying{In: perMinute(waiting, out-in)}
	}
}

// perMinute is the time that n jobs take at a rate per minute.
func perMinute(n int, rate float64) time.Duration {
	const longest = 365 * 24 * time.Hour
	return time.Duration(min(float64(n)/rate*float64(time.Minute), float64(longest)))
}

// In estimates the jobs per minute that entered a queue, over the minutes of Flows: the jobs still there
// with an id of that time, plus those that have ended since, minus the share that had waited from
// before. It is exact if all jobs wait equally long. ok is false if there are more jobs than were
// counted.
func (d *Depth) In(f Flow, now time.Time) (perMinute float64, ok bool) {
	if max(d.Ready, d.Delayed, d.Running, d.Dead) >= d.Limit {
		return 0, d.Limit == 0 // a queue that has had no job was not counted
	}
	return (float64(d.Recent) + f.young) / now.Sub(flowFrom(now)).Minutes(), true
}

// rate is how many jobs ended in a minute, over the minutes of In.
func (f Flow) rate(now time.Time) float64 {
	return float64(f.ended) / now.Sub(flowFrom(now)).Minutes()
}
