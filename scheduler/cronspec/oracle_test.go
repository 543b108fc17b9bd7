package cronspec_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The oracle knows nothing of zones' tables or of calendars. It looks at the
// wall clock at each step of time, and says whether a job runs then.

// A matcher is a spec as five sets of numbers.
type matcher struct {
	sets             [5][64]bool
	domStar, dowStar bool
	fixed            bool
}

func newMatcher(spec string) *matcher {
	for macro, fields := range map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	} {
		if strings.EqualFold(strings.TrimSpace(spec), macro) {
			spec = fields
		}
	}
	words := strings.Fields(strings.ToLower(spec))
	m := &matcher{
		domStar: words[2][0] == '*', dowStar: words[4][0] == '*',
		fixed: words[0][0] != '*' && words[1][0] != '*',
	}
	for i, limits := range [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
		for item := range strings.SplitSeq(words[i], ",") {
			span, every, _ := strings.Cut(item, "/")
			lo, hi := limits[0], limits[1]
			if span != "*" {
				a, b, isRange := strings.Cut(span, "-")
				lo = numberOf(a)
				switch {
				case isRange && b == "sun" && lo > 0:
					hi = 7
				case isRange:
					hi = numberOf(b)
				case every == "":
					hi = lo
				}
			}
			step, err := strconv.Atoi(every)
			if err != nil {
				step = 1
			}
			for v := lo; v <= hi; v++ {
				if (v-lo)%step == 0 {
					m.sets[i][v] = true
				}
			}
		}
	}
	m.sets[4][0] = m.sets[4][0] || m.sets[4][7]
	return m
}

func numberOf(s string) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	if i := slices.Index(strings.Fields("sun mon tue wed thu fri sat"), s); i >= 0 {
		return i
	}
	return 1 + slices.Index(strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec"), s)
}

// A tick is an instant and what the wall shows then, both in seconds since 1970.
type tick struct {
	at, wall                         int64
	minute, hour, day, month, second int
	weekday                          time.Weekday
}

func newTick(at, wall int64) tick {
	t := time.Unix(wall, 0).UTC()
	tick := tick{at: at, wall: wall, day: t.Day(), month: int(t.Month()), weekday: t.Weekday()}
	tick.hour, tick.minute, tick.second = t.Clock()
	return tick
}

// watch returns the ticks of [from, to), step seconds apart.
func watch(loc *time.Location, from, to time.Time, step int64) []tick {
	var ticks []tick
	for at := from.Unix(); at < to.Unix(); at += step {
		_, offset := time.Unix(at, 0).In(loc).Zone()
		ticks = append(ticks, newTick(at, at+int64(offset)))
	}
	return ticks
}

// match says whether the spec names what the wall shows, to the second.
func (m *matcher) match(t *tick) bool {
	if t.second != 0 || !m.sets[0][t.minute] || !m.sets[1][t.hour] || !m.sets[3][t.month] {
		return false
	}
	dom, dow := m.sets[2][t.day], m.sets[4][t.weekday]
	if m.domStar || m.dowStar {
		return dom && dow
	}
	return dom || dow
}

// simulate returns when a job runs. The ticks must begin three hours before the
// first answer that matters, as the rule needs to know what was shown.
func simulate(m *matcher, vixie bool, ticks []tick, step int64) []time.Time {
	const threeHours = 3 * 60 * 60
	var runs []time.Time
	shown := int64(math.MinInt64) // the job does not run before the wall shows this
	for i := range ticks {
		now := &ticks[i]
		run := m.match(now)
		if vixie && m.fixed && i > 0 {
			expected := ticks[i-1].wall + step
			switch jump := now.wall - expected; {
			case jump > threeHours || jump < -threeHours:
				shown = math.MinInt64
			case jump < 0:
				shown = max(shown, expected)
			}
			run = run && now.wall >= shown
			for skipped := expected; skipped < now.wall && now.wall-expected <= threeHours; skipped += step {
				t := newTick(now.at, skipped)
				run = run || m.match(&t) && skipped >= shown
			}
		}
		if run {
			runs = append(runs, time.Unix(now.at, 0).UTC())
		}
	}
	return runs
}
