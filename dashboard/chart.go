package dashboard

import (
	"fmt"
	"strconv"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// A chart has bars for the minutes of an hour. Templates draw it.
type chart struct {
	Bars               []bar
	Most               int // in one minute: the height of the chart
	Done, Failed, Dead int
	From               time.Time
	Took               time.Duration // averages
	Runs               bool          // of schedules, and not of jobs
}

// A bar stands for a minute. Heights are hundredths of the chart's.
type bar struct {
	X                                        int
	DoneY, DoneH, FailY, FailH, DeadY, DeadH string
	Title                                    string
}

const chartMinutes = 60

// chartOf returns the chart of the hour before now, for one queue or for all.
func chartOf(minutes []admin.Minute, name string, now time.Time) chart {
	now = now.Truncate(time.Minute)
	c := chart{From: now.Add(-(chartMinutes - 1) * time.Minute)}
	var all [chartMinutes]admin.Minute
	var took time.Duration
	for _, m := range minutes {
		i := int(m.Begins.Sub(c.From) / time.Minute)
		if name != "" && m.Queue != name || i < 0 || i >= chartMinutes || m.Begins.Before(c.From) {
			continue
		}
		all[i].Done, all[i].Failed, all[i].Dead = all[i].Done+m.Done, all[i].Failed+m.Failed, all[i].Dead+m.Dead
		took += m.Took
	}
	for _, m := range all {
		c.Done, c.Failed, c.Dead = c.Done+m.Done, c.Failed+m.Failed, c.Dead+m.Dead
		c.Most = max(c.Most, m.Done+m.Failed+m.Dead)
	}
	if n := c.Done + c.Failed + c.Dead; n > 0 {
		c.Took = took / time.Duration(n)
	}
	for i, m := range all {
		if m.Done+m.Failed+m.Dead == 0 {
			continue
		}
		height := func(n int) float64 {
			if n == 0 {
				return 0
			}
			return max(1.5, 100*float64(n)/float64(c.Most)) // keep small counts visible
		}
		done, failed, dead := height(m.Done), height(m.Failed), height(m.Dead)
		b := bar{X: i, Title: fmt.Sprintf("%s: %s done, %s failed, %s dead", c.From.Add(time.Duration(i)*time.Minute).Format("15:04 UTC"),
			plain.Number(m.Done), plain.Number(m.Failed), plain.Number(m.Dead))}
		b.DoneY, b.DoneH = decimal(100-done), decimal(done)
		b.FailY, b.FailH = decimal(100-done-failed), decimal(failed)
		b.DeadY, b.DeadH = decimal(100-done-failed-dead), decimal(dead)
		c.Bars = append(c.Bars, b)
	}
	return c
}

func decimal(f float64) string { return strconv.FormatFloat(max(0, f), 'f', 2, 64) }

// A strip shows the last runs of a schedule, oldest first: how long each took, and its outcome.
type strip struct {
	Bars    []stripBar
	Longest time.Duration
}

type stripBar struct {
	X, ID int64
	Y, H  string
	State string
	Title string
}

const stripRuns = 50

func stripOf(runs []scheduler.Run) strip {
	var s strip
	for i := range runs {
		s.Longest = max(s.Longest, took(&runs[i]))
	}
	for i := range runs {
		r := &runs[len(runs)-1-i]
		height := 30.0 // a minimum, so that short runs can be seen and clicked
		if s.Longest > 0 {
			height += 70 * float64(took(r)) / float64(s.Longest)
		}
		title := stamp(r.Due) + " UTC: " + r.State
		if t := took(r); t > 0 {
			title += ", " + plain.Span(t)
		}
		if r.Slots > 1 {
			title += ", " + plain.Number(r.Slots) + " slots"
		}
		s.Bars = append(s.Bars, stripBar{
			X: int64(stripRuns - len(runs) + i), ID: r.ID, Y: decimal(100 - height),
			H: decimal(height), State: r.State, Title: title,
		})
	}
	return s
}

// took returns how long a run has worked; 0: it has not begun or has not ended.
func took(r *scheduler.Run) time.Duration {
	if r.Started.IsZero() || r.Finished.IsZero() {
		return 0
	}
	return max(0, r.Finished.Sub(r.Started))
}
