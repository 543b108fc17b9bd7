package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

// zoneWork is schedules in time zones. The database's clock goes through some hours around changes of these zones'
// clocks, ten minutes a second, and jumps from one change to the next. Each slot enqueues a job.
type zoneWork struct {
	given   []*zoneSchedule
	windows []*window
}

// A zoneSchedule is a schedule, and what its spec says.
type zoneSchedule struct {
	scheduler.Schedule
	zone    *time.Location
	minutes []int // of the hour
	hours   []int // nil: each
}

// A window is a stretch of time through which the clock goes step by step.
type window struct{ from, to time.Time }

var zones = []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "America/Santiago", "Africa/Cairo", "Asia/Beirut"}

func (z *zoneWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "written, and the answer lost", "a clock goes forward", "a clock goes back",
		"a slot is in the hour that is there twice", "a slot was jumped over",
	}
}

func (z *zoneWork) Begin(w *World) error {
	for i := range w.Knob("schedules", 2, 4, 8) {
		d := w.Dice("schedule", i)
		name := zones[d.IntN(len(zones))]
		zone, err := time.LoadLocation(name)
		if err != nil {
			return err
		}
		one := &zoneSchedule{zone: zone, minutes: oneOf(d, []int{0, 30}, []int{15}, []int{5, 45})}
		if !d.once(3) {
			one.hours = oneOf(d, []int{0}, []int{2}, []int{1, 2, 3}, []int{0, 23})
		}
		hours := "*"
		if one.hours != nil {
			hours = list(one.hours)
		}
		one.Schedule = scheduler.Schedule{
			Name: fmt.Sprint("schedule", i), Spec: list(one.minutes) + " " + hours + " * * *", Zone: name, DST: oneOf(d, "vixie", "wall"),
			Kind: "job", Command: "slot", Job: scheduler.JobOptions{Queue: "slots"}, Policy: scheduler.Policy{Missed: "all", KeepRuns: -1},
		}
		if err := scheduler.Put(w.Free(), w.Operator, one.Schedule); err != nil {
			return err
		}
		z.given = append(z.given, one)
	}
	if _, err := queue.New(w.Operator, queue.Options{}); err != nil {
		return err
	}
	for i := range w.Knob("daemons", 1, 2, 3) {
		w.Start(fmt.Sprint("daemon-", i), z.serve)
	}
	w.StartOnce("year", z.pass)
	return nil
}

func list(all []int) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ","), "[]") }

// serve is a daemon's process.
func (z *zoneWork) serve(p *Process) error {
	db, err := p.Open(6)
	if err != nil {
		return err
	}
	daemon, err := scheduler.New(db, scheduler.Options{Node: p.Name, Poll: 500 * time.Millisecond, Kinds: []string{scheduler.Jobs}, Logger: p.Log})
	if err != nil {
		return err
	}
	return daemon.Run(p.ctx)
}

// pass has the time pass.
func (z *zoneWork) pass(p *Process) error {
	for range max(2, int(p.w.minutes*60/20)) {
		for z.late(p.w) > 0 && !p.w.Over() { // a jump would leave out what waits
			if err := p.Sleep(context.Background(), time.Second); err != nil {
				return err
			}
		}
		if p.w.Over() {
			break
		}
		change, forward := z.next(p.w.server.now().Add(6 * time.Hour))
		from := change.Add(-100 * time.Minute)
		p.w.server.set(from.Sub(p.w.server.now()))
		through := &window{from.Add(time.Minute), from}
		p.Act(func() {
			z.windows = append(z.windows, through)
			p.w.Reached(map[bool]string{true: "a clock goes forward", false: "a clock goes back"}[forward])
			p.Note("the clock is %v, before the change at %v", from, change)
		})
		for p.w.server.now().Before(change.Add(100 * time.Minute)) {
			if err := p.Sleep(context.Background(), time.Second); err != nil {
				return err
			}
			p.Act(func() { through.to = p.w.server.now() })
			p.w.server.set(10 * time.Minute)
		}
	}
	return nil
}

// next returns the next change of a schedule's zone, and whether its clock goes forward then.
func (z *zoneWork) next(after time.Time) (at time.Time, forward bool) {
	for _, one := range z.given {
		_, end := after.In(one.zone).ZoneBounds()
		if end.IsZero() || !at.IsZero() && !end.Before(at) {
			continue
		}
		_, before := end.Add(-time.Second).In(one.zone).Zone()
		_, then := end.In(one.zone).Zone()
		at, forward = end, then > before
	}
	if at.IsZero() {
		at = after.Add(24 * time.Hour)
	}
	return at.UTC(), forward
}

// late counts the schedules that have a slot that has come, those, too, that are tried again later.
func (z *zoneWork) late(w *World) (n int) {
	err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT COUNT(*) FROM dbcron_schedule WHERE state = 'active' AND due_at <= sim_now()`).Scan(&n)
	if err != nil {
		w.Violate("check", nil, "%v", err)
	}
	return n
}

// Left says which program has not ended, and whether a slot waits.
func (z *zoneWork) Left(w *World) string {
	left := leftPrograms(w)
	if n := z.late(w); n > 0 {
		left = append(left, fmt.Sprint(n, " schedules are late"))
	}
	return strings.Join(left, "; ")
}

// Check compares the jobs with the slots that a walk through all minutes finds.
func (z *zoneWork) Check(w *World) error {
	jobs, err := (&scheduleWork{}).countJobs(w)
	if err != nil {
		return err
	}
	for _, one := range z.given {
		for _, win := range z.windows {
			for t := win.from.Truncate(time.Minute); t.Before(win.to); t = t.Add(time.Minute) {
				want, why := one.isSlot(t)
				if why != "" {
					w.count(why)
				}
				got := jobs[one.Name][t.Format(time.RFC3339Nano)]
				if want {
					w.mu.Lock()
					w.done["slots"]++
					w.mu.Unlock()
				}
				if n := map[bool]int{true: 1}[want]; got != n {
					w.Violate(map[bool]string{true: "lost", false: "doubled"}[got < n], []string{one.Name}, "%s (%s in %s, %s): %v is %v, and has %d jobs",
						one.Name, one.Spec, one.Zone, one.DST, t, t.In(one.zone), got)
				}
			}
		}
	}
	return nil
}

// isSlot reports whether a schedule has a slot at a minute, and what is special about it.
func (z *zoneSchedule) isSlot(t time.Time) (is bool, why string) {
	local := t.In(z.zone)
	begin, _ := local.ZoneBounds()
	_, now := local.Zone()
	_, before := begin.Add(-time.Second).In(z.zone).Zone()
	change := time.Duration(now-before) * time.Second
	fixed := z.DST == "vixie" && z.hours != nil
	if z.shows(t.UTC().Add(time.Duration(now) * time.Second)) {
		if again := change < 0 && t.Sub(begin) < -change; again {
			return !fixed, "a slot is in the hour that is there twice"
		}
		return true, ""
	}
	if fixed && change > 0 && t.Equal(begin) { // what the clock has jumped over
		for gone := time.Duration(0); gone < change; gone += time.Minute {
			if z.shows(t.UTC().Add(time.Duration(before)*time.Second + gone)) {
				return true, "a slot was jumped over"
			}
		}
	}
	return false, ""
}

// shows reports whether a wall clock shows a time of the spec.
func (z *zoneSchedule) shows(wall time.Time) bool {
	return slices.Contains(z.minutes, wall.Minute()) && (z.hours == nil || slices.Contains(z.hours, wall.Hour()))
}
