package health

import (
	"time"

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
