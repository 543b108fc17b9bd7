package scheduler

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/plain"
)

// found returns a schedule as a claim would find it, at a time.
func found(t interface {
	Helper()
	Fatal(...any)
}, s Schedule, due, now time.Time,
) *candidate {
	t.Helper()
	s.Name, s.Command = "job", "true"
	c := &candidate{Schedule: s.filled(), now: now}
	c.Due = due
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	return c
}

// told is a turn in one line, with times in seconds after the start.
func told(t decision) string {
	var words []string
	switch n := len(t.runs); {
	case n > 3:
		words = append(words, fmt.Sprintf("runs %s..%s:%d", seconds(t.runs[0]), seconds(t.runs[n-1]), n))
	case n > 0:
		words = append(words, "runs")
		for _, slot := range t.runs {
			words = append(words, seconds(slot))
		}
	}
	for _, m := range t.missed {
		why := map[string]string{whyNobody: "nobody", whyLate: "late", whyPolicy: "policy", whyMany: "many"}[m.why]
		words = append(words, fmt.Sprintf("%s %s-%s:%d", why, seconds(m.from), seconds(m.to), m.n))
	}
	switch {
	case t.ended != "":
		words = append(words, "ended")
	case t.due.IsZero():
		words = append(words, "by hand")
	default:
		words = append(words, "next "+seconds(t.due))
	}
	return strings.Join(words, " ")
}

// What a schedule does with the slots that have come, as its policy says.
func TestTurn(t *testing.T) {
	const cron, ten = "* * * * *", "@every 10s"
	year := 365 * 24 * time.Hour
	for _, c := range []struct {
		what string
		Schedule
		due, now time.Duration
		want     string
	}{
		{"on time", Schedule{Spec: cron}, 60e9, 60e9, "runs 60 next 120"},
		{"a bit late", Schedule{Spec: cron}, 60e9, 119e9, "runs 60 next 120"},
		{"one was missed", Schedule{Spec: cron}, 60e9, 120e9, "runs 120 nobody 60-60:1 next 180"},
		{"once", Schedule{Spec: cron}, 60e9, 330e9, "runs 300 nobody 60-240:4 next 360"},
		{"once, interval", Schedule{Spec: ten}, 10e9, 55e9, "runs 50 nobody 10-40:4 next 60"},
		{"skip", Schedule{Spec: cron, Policy: Policy{Missed: "skip"}}, 60e9, 330e9, "runs 300 policy 60-240:4 next 360"},
		{"skip, too late", Schedule{Spec: "*/5 * * * *", Policy: Policy{Missed: "skip"}}, 300e9, 661e9, "policy 300-600:2 next 900"},
		{"skip, just in time", Schedule{Spec: "*/5 * * * *", Policy: Policy{Missed: "skip"}}, 300e9, 660e9, "runs 600 policy 300-300:1 next 900"},
		{
			"skip, some in time",
			Schedule{Spec: ten, Policy: Policy{Missed: "skip"}},
			10e9, 105e9,
			"runs 100 policy 10-40:4 nobody 50-90:5 next 110",
		},
		{
			"skip, a window",
			Schedule{Spec: ten, Policy: Policy{Missed: "skip", MissedWindow: 20 * time.Second}},
			10e9, 105e9, "runs 100 late 10-80:8 nobody 90-90:1 next 110",
		},
		{"once, a window", Schedule{Spec: cron, Policy: Policy{MissedWindow: time.Minute}}, 60e9, 355e9, "runs 300 late 60-240:4 next 360"},
		{"once, all too late", Schedule{Spec: cron, Policy: Policy{MissedWindow: time.Minute / 2}}, 60e9, 355e9, "late 60-300:5 next 360"},
		{"all", Schedule{Spec: cron, Policy: Policy{Missed: "all"}}, 60e9, 185e9, "runs 60 120 180 next 240"},
		{
			"all, a window",
			Schedule{Spec: cron, Policy: Policy{Missed: "all", MissedWindow: 130 * time.Second}},
			60e9, 370e9, "runs 240 300 360 late 60-180:3 next 420",
		},
		{"all, 100", Schedule{Spec: ten, Policy: Policy{Missed: "all"}}, 10e9, 1009e9, "runs 10..1000:100 next 1010"},
		{"all, 101", Schedule{Spec: ten, Policy: Policy{Missed: "all"}}, 10e9, 1010e9, "runs 20..1010:100 many 10-10:1 next 1020"},
		{
			"all, 101 on a calendar",
			Schedule{Spec: cron, Policy: Policy{Missed: "all"}},
			60e9, 6060e9,
			"runs 120..6060:100 many 60-60:1 next 6120",
		},
		{"all, many", Schedule{Spec: cron, Policy: Policy{Missed: "all"}}, 60e9, 60000e9, "runs 54060..60000:100 many 60-54000:900 next 60060"},
		{
			"all, many, a window",
			Schedule{Spec: ten, Policy: Policy{Missed: "all", MissedWindow: 2000 * time.Second}},
			10e9, 6000e9, "runs 5010..6000:100 late 10-3990:399 many 4000-5000:101 next 6010",
		},
		{
			"all, far between",
			Schedule{Spec: "0 9 1 * *", Policy: Policy{Missed: "all"}},
			30 * 24 * time.Hour,
			92 * 24 * time.Hour, "runs 2592000 5184000 7862400 next 10454400",
		},
		{"years of an interval", Schedule{Spec: "@every 1s"}, 1e9, year, "runs 31536000 nobody 1-31535999:31535999 next 31536001"},
		{"years of minutes", Schedule{Spec: cron}, 60e9, year, "runs 31536000 nobody 60-31535940:10000 next 31536060"},
		{"nothing but the limit", Schedule{Spec: cron}, 60e9, 60e9 * 10_001, "runs 600060 nobody 60-600000:10000 next 600120"},
		{"below the limit", Schedule{Spec: cron}, 60e9, 60e9 * 10_000, "runs 600000 nobody 60-599940:9999 next 600060"},
		{"at a time that is no slot", Schedule{Spec: cron}, 70e9, 75e9, "runs 70 next 120"},
		{
			"at a time that is no slot, and then slots",
			Schedule{Spec: cron, Policy: Policy{Missed: "all"}},
			70e9,
			185e9, "runs 70 120 180 next 240",
		},
		{"an interval from another time on", Schedule{Spec: ten, Policy: Policy{Missed: "all"}}, 73e9, 93e9, "runs 73 83 93 next 103"},
		{
			"an interval from a part of a second on",
			Schedule{Spec: ten, Policy: Policy{Missed: "all"}},
			73.4e9,
			93.5e9, "runs 73.4 83.4 93.4 next 103.4",
		},
		{"by hand", Schedule{Spec: "@manual"}, 60e9, 600e9, "runs 60 by hand"},
		{"by hand, too late", Schedule{Spec: "@manual", Policy: Policy{Missed: "skip"}}, 60e9, 600e9, "policy 60-60:1 by hand"},
		{"the last slot", Schedule{Spec: cron, Policy: Policy{Ends: at(119e9)}}, 60e9, 70e9, "runs 60 ended"},
		{"a slot at the end", Schedule{Spec: cron, Policy: Policy{Ends: at(120e9)}}, 60e9, 70e9, "runs 60 next 120"},
		{"the slot at the end", Schedule{Spec: cron, Policy: Policy{Ends: at(120e9)}}, 120e9, 130e9, "runs 120 ended"},
		{"the end was moved to before the slot", Schedule{Spec: cron, Policy: Policy{Ends: at(50e9)}}, 60e9, 130e9, "ended"},
	} {
		if got := told(found(t, c.Schedule, at(c.due), at(c.now)).decide()); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, got, c.want)
		}
	}
}

// If no daemon ran at a schedule's end, the policy decides about the slots before the end.
func TestTurnAfterTheEnd(t *testing.T) {
	for _, c := range []struct {
		what string
		Policy
		now  time.Duration
		want string
	}{
		{"one slot", Policy{Ends: at(90e9)}, 150e9, "runs 60 ended"},
		{"the newest", Policy{Ends: at(190e9)}, 500e9, "runs 180 nobody 60-120:2 ended"},
		{"all", Policy{Ends: at(190e9), Missed: "all"}, 500e9, "runs 60 120 180 ended"},
		{"none", Policy{Ends: at(190e9), Missed: "skip"}, 500e9, "policy 60-180:3 ended"},
		{"too late", Policy{Ends: at(190e9), MissedWindow: time.Minute}, 500e9, "late 60-180:3 ended"},
	} {
		if got := told(found(t, Schedule{Spec: "* * * * *", Policy: c.Policy}, at(60e9), at(c.now)).decide()); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, got, c.want)
		}
	}
}

// When the clocks change, a daemon that was away finds the same slots as one
// that was there.
func TestTurnOnDaysOfClockChanges(t *testing.T) {
	utc := func(month time.Month, day, hour, minute int) time.Time {
		return time.Date(2026, month, day, hour, minute, 0, 0, time.UTC)
	}
	all := Policy{Missed: "all"}
	for _, c := range []struct {
		spec, dst string
		due, now  time.Time
		want      []time.Time // and then the next
	}{
		// Berlin, 29 March: 2:00 is 3:00, at 1:00 UTC.
		{
			"30 2 * * *", "vixie", utc(3, 28, 1, 30), utc(3, 30, 12, 0),
			[]time.Time{utc(3, 28, 1, 30), utc(3, 29, 1, 0), utc(3, 30, 0, 30), utc(3, 31, 0, 30)},
		},
		{"30 2 * * *", "wall", utc(3, 28, 1, 30), utc(3, 30, 12, 0), []time.Time{utc(3, 28, 1, 30), utc(3, 30, 0, 30), utc(3, 31, 0, 30)}},
		{
			"*/30 1-3 * * *", "vixie", utc(3, 29, 0, 0), utc(3, 29, 1, 45),
			[]time.Time{utc(3, 29, 0, 0), utc(3, 29, 0, 30), utc(3, 29, 1, 0), utc(3, 29, 1, 30), utc(3, 29, 23, 0)},
		},
		// Berlin, 25 October: 3:00 is 2:00, at 1:00 UTC.
		{
			"30 2 * * *", "vixie", utc(10, 24, 0, 30), utc(10, 26, 12, 0),
			[]time.Time{utc(10, 24, 0, 30), utc(10, 25, 0, 30), utc(10, 26, 1, 30), utc(10, 27, 1, 30)},
		},
		{
			"30 2 * * *", "wall", utc(10, 24, 0, 30), utc(10, 26, 12, 0),
			[]time.Time{utc(10, 24, 0, 30), utc(10, 25, 0, 30), utc(10, 25, 1, 30), utc(10, 26, 1, 30), utc(10, 27, 1, 30)},
		},
		{
			"0 * * * *", "vixie", utc(10, 24, 23, 0), utc(10, 25, 2, 10),
			[]time.Time{utc(10, 24, 23, 0), utc(10, 25, 0, 0), utc(10, 25, 1, 0), utc(10, 25, 2, 0), utc(10, 25, 3, 0)},
		},
	} {
		got := found(t, Schedule{Spec: c.spec, Zone: "Europe/Berlin", DST: c.dst, Policy: all}, c.due, c.now).decide()
		if slots := append(slices.Clone(got.runs), got.due); !slices.Equal(slots, c.want) || len(got.missed) > 0 {
			t.Errorf("%s %s:\n got %v\nwant %v", c.spec, c.dst, slots, c.want)
		}
		once := found(t, Schedule{Spec: c.spec, Zone: "Europe/Berlin", DST: c.dst}, c.due, c.now).decide()
		if n := len(c.want) - 1; len(once.missed) != 1 || once.missed[0].n != int64(n-1) || !once.runs[0].Equal(c.want[n-1]) {
			t.Errorf("%s %s: once runs %v, and misses %v", c.spec, c.dst, once.runs, once.missed)
		}
	}
}

// anySpec draws a spec with slots between seconds and days apart.
func anySpec(r *rapid.T) (spec, zone, dst string) {
	spec = rapid.SampledFrom([]string{
		"@every 1s", "@every 7s", "@every 1m", "@every 90m", "* * * * *", "*/7 * * * *", "5,6,50 * * * *", "0 */3 * * *",
		"@hourly", "30 2 * * *", "15 1-3 * * *", "0 0 * * 0", "@monthly", "0 0 29 2 *", "*/10 2 * * 6,0",
	}).Draw(r, "spec")
	zone = rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"}).Draw(r, "zone")
	return spec, zone, rapid.SampledFrom([]string{"vixie", "wall"}).Draw(r, "dst")
}

// anyTime draws a time of two years, with their clock changes, often near one.
func anyTime(r *rapid.T) time.Time {
	base := rapid.SampledFrom([]time.Time{
		dbtest.Start, time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 24, 23, 0, 0, 0, time.UTC),
		time.Date(2027, 4, 3, 12, 0, 0, 0, time.UTC),
	}).Draw(r, "base")
	return base.Add(time.Duration(rapid.Int64Range(0, int64(36*time.Hour/time.Millisecond)).Draw(r, "ms")) * time.Millisecond)
}

// Of the slots from the first to the next each is either run or missed, once;
// which, is as somebody finds who goes from slot to slot; and the next one is
// the first that has not come.
func TestTurnRandom(t *testing.T) {
	for range 10 {
		rapid.Check(t, turnRandom)
	}
}

func turnRandom(r *rapid.T) {
	s := Schedule{}
	s.Spec, s.Zone, s.DST = anySpec(r)
	s.Missed = rapid.SampledFrom([]string{"once", "all", "skip"}).Draw(r, "missed")
	s.MissedWindow = rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute, time.Hour, 50 * time.Hour}).Draw(r, "window")
	s.Jitter = rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute, 24 * time.Hour}).Draw(r, "jitter")
	begin := anyTime(r)
	c := found(r, s, begin, begin)
	c.Due, _ = c.plan.Next(begin)
	if rapid.IntRange(0, 9).Draw(r, "off plan") == 0 {
		c.Due = begin
	}
	c.now = c.Due.Add(c.delay(c.plan, c.Due))
	unit := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(r, "unit")
	c.now = c.now.Add(unit * time.Duration(rapid.IntRange(0, 120).Draw(r, "outage")))
	var come []time.Time
	next := c.Due
	for ok := true; ok && !next.Add(c.delay(c.plan, next)).After(c.now) && len(come) < 3000; next, ok = c.plan.Next(next) {
		come = append(come, next)
	}
	if len(come) == 3000 {
		return // enough of that
	}
	ended := false
	if rapid.Bool().Draw(r, "ends") {
		c.Ends = rapid.SampledFrom(come).Draw(r, "last").Add(rapid.SampledFrom([]time.Duration{0, 1, 1e9, 1e18}).Draw(r, "ends after"))
		ended = next.After(c.Ends)
		come = slices.DeleteFunc(come, func(slot time.Time) bool { return slot.After(c.Ends) })
	}

	window := s.MissedWindow
	if s.Missed == "skip" && window == 0 {
		window = time.Minute
	}
	inTime := slices.DeleteFunc(slices.Clone(come), func(slot time.Time) bool {
		return window > 0 && slot.Before(c.now.Add(-window-s.Jitter))
	})
	wantRuns := inTime[max(0, len(inTime)-1):]
	if s.Missed == "all" {
		wantRuns = inTime[max(0, len(inTime)-100):]
	}

	got := c.decide()
	if !slices.EqualFunc(got.runs, wantRuns, time.Time.Equal) {
		r.Errorf("runs %v, want %v", got.runs, wantRuns)
	}
	covered := map[time.Time]int{}
	for _, slot := range got.runs {
		covered[slot]++
	}
	for _, m := range got.missed {
		n := int64(0)
		for _, slot := range come {
			if !slot.Before(m.from) && !slot.After(m.to) {
				covered[slot]++
				n++
			}
		}
		if n != m.n || covered[m.from] == 0 || covered[m.to] == 0 || m.why == "" {
			r.Errorf("range %+v has %d slots", m, n)
		}
	}
	for _, slot := range come {
		if covered[slot] != 1 {
			r.Errorf("slot %v is covered %d times: %s", slot, covered[slot], told(got))
		}
		delete(covered, slot)
	}
	if len(covered) > 0 {
		r.Errorf("no slots: %v", covered)
	}
	if (got.ended != "") != ended || !ended &&
		(!got.due.Equal(next) || !got.next.Equal(next.Add(c.delay(c.plan, next))) || !got.next.After(c.now)) {
		r.Errorf("next is %v, from %v, ended %q; want %v", got.due, got.next, got.ended, next)
	}
}

// Jitter is the same for a name and a slot, from 0 to below the limit, and ends
// before the next slot.
func TestDelay(t *testing.T) {
	for range 10 {
		rapid.Check(t, func(r *rapid.T) {
			s := Schedule{Name: rapid.String().Draw(r, "name")}
			s.Spec, s.Zone, s.DST = anySpec(r)
			s.Jitter = rapid.SampledFrom([]time.Duration{
				0, time.Millisecond, 2 * time.Millisecond, time.Second, time.Minute, time.Hour, 30 * 24 * time.Hour, plain.LongestDuration,
			}).Draw(r, "jitter")
			plan, err := s.Slots()
			if err != nil {
				r.Fatal(err)
			}
			due, ok := plan.Next(anyTime(r))
			if !ok {
				return
			}
			d := s.delay(plan, due)
			other, err := s.Slots()
			if again := s.delay(other, due); err != nil || again != d {
				r.Errorf("%v, and then %v", d, again)
			}
			next, there := plan.Next(due)
			if d < 0 || d >= max(1, s.Jitter) || there && !due.Add(d).Before(next) {
				r.Errorf("a jitter of %v, when the limit is %v, and the next slot comes after %v", d, s.Jitter, next.Sub(due))
			}
		})
	}
	// All of the time to the next slot is made use of, and no more.
	dense, err := (&Schedule{Spec: "@every 1s"}).Slots()
	if err != nil {
		t.Fatal(err)
	}
	most := time.Duration(0)
	for i := range 5000 {
		s := Schedule{Name: fmt.Sprint("job", i), Policy: Policy{Jitter: time.Minute}}
		most = max(most, s.delay(dense, dbtest.Start))
	}
	if most < 990*time.Millisecond || most >= time.Second {
		t.Errorf("of slots that are a second apart the longest jitter is %v", most)
	}
	// It spreads: schedules over a time, and a schedule's slots too.
	plan, err := (&Schedule{Spec: "@hourly"}).Slots()
	if err != nil {
		t.Fatal(err)
	}
	for what, one := range map[string]func(i int) time.Duration{
		"schedules": func(i int) time.Duration {
			s := Schedule{Name: fmt.Sprintf("job%d", i), Policy: Policy{Jitter: 10 * time.Minute}}
			return s.delay(plan, dbtest.Start)
		},
		"slots": func(i int) time.Duration {
			s := Schedule{Name: "job", Policy: Policy{Jitter: 10 * time.Minute}}
			return s.delay(plan, dbtest.Start.Add(time.Duration(i)*time.Hour))
		},
	} {
		const n = 2000
		var minutes [10]float64
		for i := range n {
			minutes[one(i)/time.Minute]++
		}
		for _, in := range minutes {
			if math.Abs(in-n/10) > 60 { // 4.5 standard deviations
				t.Errorf("%s per minute: %v", what, minutes)
			}
		}
	}
}

// A new schedule's first slot.
func TestFirst(t *testing.T) {
	for _, c := range []struct {
		what string
		Schedule
		want string // seconds, and when it may be claimed
	}{
		{"cron", Schedule{Spec: "* * * * *"}, "60"},
		{"interval", Schedule{Spec: "@every 10s"}, "10"},
		{"starts later", Schedule{Spec: "* * * * *", Policy: Policy{Starts: at(601e9)}}, "660"},
		{"starts at a slot", Schedule{Spec: "* * * * *", Policy: Policy{Starts: at(600e9)}}, "600"},
		{"started before", Schedule{Spec: "* * * * *", Policy: Policy{Starts: at(-600e9)}}, "60"},
		{"ends at the first", Schedule{Spec: "* * * * *", Policy: Policy{Ends: at(60e9)}}, "60"},
		{"ends before the first", Schedule{Spec: "* * * * *", Policy: Policy{Ends: at(59e9)}}, "none"},
		{"nothing between", Schedule{Spec: "0 * * * *", Policy: Policy{Starts: at(61e9), Ends: at(3599e9)}}, "none"},
		{"now", Schedule{Spec: "* * * * *", Policy: Policy{FirstRun: "now"}}, "0.123"},
		{"now, after the end", Schedule{Spec: "* * * * *", Policy: Policy{FirstRun: "now", Ends: at(-1)}}, "none"},
		{"by hand", Schedule{Spec: "@manual"}, "never"},
		{"by hand, and now", Schedule{Spec: "@manual", Policy: Policy{FirstRun: "now"}}, "0.123"},
	} {
		s := found(t, c.Schedule, time.Time{}, at(0))
		got := "none"
		switch due, next, err := s.first(s.plan, at(123_456*time.Microsecond)); {
		case err == nil && due.IsZero() && next.Equal(never):
			got = "never"
		case err == nil && !next.Equal(due):
			got = "without a jitter at " + seconds(next)
		case err == nil:
			got = seconds(due)
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
}

// Slots before the start are none, whatever first_run says; and an interval that
// has a start counts from it.
func TestFirstAfterAStart(t *testing.T) {
	start := at(time.Hour)
	s := found(t, Schedule{Spec: "* * * * *", Policy: Policy{FirstRun: "now", Starts: start}}, time.Time{}, at(0))
	if due, _, err := s.first(s.plan, at(0)); err != nil || due.Before(start) {
		t.Errorf("now: first run at %s, %v, before its start", seconds(due), err)
	}
	s = found(t, Schedule{Spec: "@every 10m", Policy: Policy{Starts: start}}, time.Time{}, at(0))
	if due, _, err := s.first(s.plan, at(0)); err != nil || !due.Equal(start) && !due.Equal(start.Add(10*time.Minute)) {
		t.Errorf("@every 10m from 3600 on: first slot at %s, %v; want 3600, or 4200", seconds(due), err)
	}
}

// With a database: the same, written down.
func TestMissedPolicies(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for name, s := range map[string]Schedule{
			"all":    {Spec: "@every 1m", Policy: Policy{Missed: "all"}},
			"both":   {Spec: "@every 1m", Policy: Policy{Missed: "all", MissedWindow: 5 * time.Minute, Overlap: "allow"}},
			"hand":   {Spec: "@manual"},
			"jitter": {Spec: "@every 1m", Policy: Policy{Jitter: 40 * time.Second}},
			"many":   {Spec: "@every 1m", Policy: Policy{Missed: "all", MissedWindow: 110 * time.Minute}},
			"now":    {Spec: "0 * * * *", Policy: Policy{FirstRun: "now"}},
			"once":   {Spec: "* * * * *"},
			"skip":   {Spec: "@every 15m", Policy: Policy{Missed: "skip"}},
			"start":  {Spec: "* * * * *", Policy: Policy{Starts: at(8 * time.Minute), Ends: at(11 * time.Minute)}},
			"window": {Spec: "* * * * *", Policy: Policy{MissedWindow: 30 * time.Second}},
		} {
			s.Name, s.Command = name, "true"
			if err := Add(t.Context(), db.DB, s); err != nil {
				t.Fatal(err)
			}
		}
		if err := Pause(t.Context(), db.DB, "many", ""); err != nil {
			t.Fatal(err)
		}
		db.Advance(t, 10*time.Minute-time.Second)
		s := daemon(t, db, Options{Lease: 10 * time.Minute})
		settle(t, s)
		wantRows(t, db, "all", "60 1 ok", "120 1 ok", "180 1 ok", "240 1 ok", "300 1 ok", "360 1 ok", "420 1 ok", "480 1 ok", "540 1 ok")
		wantRows(t, db, "both", "60 1 missed to 240: 4", "300 1 ok", "360 1 ok", "420 1 ok", "480 1 ok", "540 1 ok")
		wantRows(t, db, "hand")
		wantRows(t, db, "now", "0 1 ok")
		wantRows(t, db, "once", "60 1 missed to 480: 8", "540 1 ok")
		wantRows(t, db, "skip")
		wantRows(t, db, "start", "480 1 missed to 480: 1", "540 1 ok")
		wantRows(t, db, "window", "60 1 missed to 540: 9")
		wantErrors(t, db, "window", whyLate)
		wantErrors(t, db, "both", whyLate, "", "", "", "", "")

		// More of the same lengthens the row; the daemon was too busy, or there was none.
		db.Advance(t, 59*time.Second)
		settle(t, s)
		wantRows(t, db, "window", "60 1 missed to 600: 10")
		db.Do(t, `DELETE FROM {prefix}schedule WHERE name IN ('all', 'both', 'start')`, nil)
		db.Advance(t, 8*time.Minute)
		settle(t, s)
		wantRows(t, db, "window", "60 1 missed to 1080: 18")
		wantRows(t, db, "skip", "900 1 missed to 900: 1")
		wantErrors(t, db, "skip", whyPolicy)
		wantRows(t, db, "now", "0 1 ok")

		// A schedule at its end, jitter, and what somebody sets by hand.
		db.Do(t, `UPDATE {prefix}schedule SET next_exec = {now} WHERE name = 'hand'`, nil)
		settle(t, s)
		wantRows(t, db, "hand", "1138 1 ok")
		if hand := stored(t, db, "hand"); hand.State != "active" || !hand.Due.IsZero() {
			t.Errorf("after a run the schedule without slots is %s, due at %v", hand.State, hand.Due)
		}
		j := stored(t, db, "jitter")
		var next int64
		db.Scan(t, `SELECT {us next_exec} FROM {prefix}schedule WHERE name = 'jitter'`, nil, &next)
		plan, err := j.Slots()
		if err != nil {
			t.Fatal(err)
		}
		if d := j.delay(plan, j.Due); !instantOf(next).Equal(j.Due.Add(d)) || d == 0 {
			t.Errorf("jitter %v, and the slot of %v may be claimed at %v", d, j.Due, instantOf(next))
		}
		before := len(rows(t, db, "jitter"))
		db.Advance(t, instantOf(next).Sub(at(1138*time.Second))-time.Millisecond)
		settle(t, s)
		db.Advance(t, time.Millisecond)
		if n := len(rows(t, db, "jitter")); n != before {
			t.Error("a run began before its jitter was over")
		}
		settle(t, s)
		if n := len(rows(t, db, "jitter")); n != before+1 {
			t.Error("no run when the jitter was over")
		}

		// Resumed: what came meanwhile is skipped, and nothing is caught up.
		if err := Resume(t.Context(), db.DB, "many"); err != nil {
			t.Fatal(err)
		}
		settle(t, s)
		if got := rows(t, db, "many"); len(got) != 1 || !strings.HasPrefix(got[0], "60 1 skipped to ") {
			t.Errorf("after Resume: %q", got)
		}
		db.Advance(t, 2*time.Hour+time.Minute)
		claimed(t, s, 10)
		states := map[string]int64{}
		for _, r := range allRuns(t, db, "many") {
			states[r.State+" "+r.Error] += r.Slots
		}
		if states["missed "+whyLate] == 0 || states["missed "+whyMany] == 0 || states["running "]+states["waiting "] != 100 {
			t.Errorf("many: %v", states)
		}
	})
}

// wantErrors compares the texts of a schedule's runs, oldest slot first.
func wantErrors(t *testing.T, db *dbtest.DB, name string, want ...string) {
	t.Helper()
	var got []string
	for _, r := range allRuns(t, db, name) {
		got = append(got, r.Error)
	}
	if !slices.Equal(got, want) {
		t.Errorf("runs of %q:\n got %q\nwant %q", name, got, want)
	}
}

// A schedule that has an end runs its last slot, and then says why it is over.
func TestEnds(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add := func(name string, p Policy) {
			if err := Add(t.Context(), db.DB, Schedule{Name: name, Spec: "@every 1m", Command: "true", Policy: p}); err != nil {
				t.Fatal(err)
			}
		}
		add("job", Policy{Starts: at(-time.Hour), Ends: at(2 * time.Minute)})
		add("paused", Policy{Ends: at(150 * time.Second)})
		if err := Pause(t.Context(), db.DB, "paused", ""); err != nil {
			t.Fatal(err)
		}
		s := daemon(t, db, Options{})
		for range 4 {
			db.Advance(t, time.Minute)
			settle(t, s)
		}
		wantRows(t, db, "job", "60 1 ok", "120 1 ok")
		if job := stored(t, db, "job"); job.State != "ended" || !strings.Contains(job.Reason, "end is past") {
			t.Errorf("the schedule is %s: %s", job.State, job.Reason)
		}
		// Somebody moves the end: it goes on from now.
		job := stored(t, db, "job")
		job.Ends = at(time.Hour)
		if err := Edit(t.Context(), db.DB, job); err != nil {
			t.Fatal(err)
		}
		db.Advance(t, time.Minute)
		settle(t, s)
		wantRows(t, db, "job", "60 1 ok", "120 1 ok", "300 1 ok")
		// One that is resumed after its end has skipped the slots up to its end.
		if err := Resume(t.Context(), db.DB, "paused"); err != nil {
			t.Fatal(err)
		}
		settle(t, s)
		wantRows(t, db, "paused", "60 1 skipped to 120: 2")
	})
}

// A schedule that has reached its end finishes its last slots: missed ones that wait are run,
// and those handed back, lost or failed are retried.
func TestTheLastSlotsOfAScheduleAreRun(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"all", "back", "crash", "retry"} {
			err := Add(t.Context(), db.DB, Schedule{Name: name, Spec: "@every 1m", Command: "true", Policy: Policy{
				Ends: at(3*time.Minute + 30*time.Second), Missed: "all", Overlap: "queue", MaxAttempts: 2, RetryDelay: time.Second, RetryPastNext: true,
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		s := daemon(t, db, Options{})
		db.Advance(t, 3*time.Minute)
		for _, e := range claimed(t, s, 10) {
			switch e.schedule {
			case "all":
				finished(t, s, e, 0)
			case "back":
				handedBack(t, s, e)
			case "retry":
				finished(t, s, e, 1)
			}
		}
		db.Advance(t, 31*time.Second)
		settle(t, daemon(t, db, Options{}))
		wantRows(t, db, "all", "60 1 ok", "120 1 ok", "180 1 ok")
		wantRows(t, db, "back", "60 1 retry", "60 2 ok", "120 1 ok", "180 1 ok")
		wantRows(t, db, "crash", "60 1 lost", "60 2 ok", "120 1 ok", "180 1 ok")
		wantRows(t, db, "retry", "60 1 failed", "60 2 ok", "120 1 ok", "180 1 ok")
	})
}

// A range of slots is recorded also if one of them has a row already, say by
// Backfill before a daemon came.
func TestAStretchThatBeginsWithASlotThatHasARun(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1m")
		db.Advance(t, 10*time.Minute) // there was no daemon
		b, err := Backfill(t.Context(), db.DB, "job", at(time.Minute), at(2*time.Minute), false)
		if err != nil || len(b.Slots) != 2 {
			t.Fatal(b, err)
		}
		s := daemon(t, db, Options{})
		for range 3 {
			settle(t, s)
			db.Advance(t, 30*time.Second)
		}
		slots := int64(0)
		for _, r := range allRuns(t, db, "job") {
			if !r.Due.After(at(10 * time.Minute)) {
				slots += r.Slots
			}
		}
		if slots < 10 {
			t.Errorf("of 10 slots %d are there: %q", slots, rows(t, db, "job"))
		}
	})
}
