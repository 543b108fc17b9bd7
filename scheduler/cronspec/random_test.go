package cronspec_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// drawItem draws one item of a list: a legal one.
func drawItem(t *rapid.T, lo, hi int) string {
	a := rapid.IntRange(lo, hi).Draw(t, "a")
	b := rapid.IntRange(a, hi).Draw(t, "b")
	switch rapid.IntRange(0, 5).Draw(t, "shape") {
	case 0:
		return "*"
	case 1:
		return fmt.Sprint(a)
	case 2:
		return fmt.Sprint(a, "-", b)
	case 3:
		return fmt.Sprint("*/", rapid.IntRange(1, hi-lo+1).Draw(t, "step"))
	case 4:
		return fmt.Sprint(a, "/", rapid.IntRange(1, hi-a+1).Draw(t, "step"))
	default:
		return fmt.Sprint(a, "-", b, "/", rapid.IntRange(1, b-a+1).Draw(t, "step"))
	}
}

// drawSpec draws five fields; the days are rare in one case of four.
func drawSpec(t *rapid.T) string {
	var words []string
	for _, limits := range [][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
		var items []string
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 4}).Draw(t, "items") {
			items = append(items, drawItem(t, limits[0], limits[1]))
		}
		words = append(words, strings.Join(items, ","))
	}
	if rapid.Bool().Draw(t, "each day") {
		words[2], words[3], words[4] = "*", "*", "*"
	}
	return strings.Join(words, " ")
}

func drawSchedule(t *rapid.T, zones []string) *cronspec.Schedule {
	spec := drawSpec(t)
	if rapid.IntRange(0, 3).Draw(t, "interval") == 0 {
		spec = "@every " + (time.Duration(rapid.IntRange(1, 100_000).Draw(t, "seconds")) * time.Second).String()
	}
	s, err := cronspec.New(spec, rapid.SampledFrom(zones).Draw(t, "zone"), rapid.SampledFrom([]string{"vixie", "wall"}).Draw(t, "dst"))
	if err != nil {
		t.Skip(err) // 31 February
	}
	return s
}

func drawTime(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(date(1900, 1, 1).Unix(), date(2500, 1, 1).Unix()).Draw(t, "time"),
		rapid.SampledFrom([]int64{0, 0, 1, 999_999_999}).Draw(t, "nanoseconds")).UTC()
}

// TestLatestAndCount compares with following Next from slot to slot.
func TestLatestAndCount(t *testing.T) {
	t.Parallel()
	zones := allZones(t)
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t, zones)
		after := drawTime(t)
		until := after.Add(time.Duration(rapid.Int64Range(-1e9, int64(400*24*time.Hour)).Draw(t, "interval")))
		limit := rapid.IntRange(-1, 200).Draw(t, "limit")

		var slots []time.Time
		for at := after; len(slots) < 200; {
			next, ok := s.Next(at)
			if !ok || next.After(until) {
				break
			}
			if !next.After(at) {
				t.Fatalf("%v: Next(%v) is %v, not after it", s, at, next)
			}
			slots = append(slots, next)
			at = next
		}
		if got, want := s.Count(after, until, limit), max(0, min(len(slots), limit)); got != want {
			t.Fatalf("%v: Count(%v, %v, %d) is %d, want %d", s, after, until, limit, got, want)
		}
		got, ok := s.Latest(after, until)
		switch {
		case len(slots) < 200 && ok != (len(slots) > 0):
			t.Fatalf("%v: Latest(%v, %v) is %v, %v, want %d slots", s, after, until, got, ok, len(slots))
		case len(slots) == 0:
		case len(slots) < 200 && !got.Equal(slots[len(slots)-1]):
			t.Fatalf("%v: Latest(%v, %v) is %v, want %v", s, after, until, got, slots[len(slots)-1])
		case got.After(until) || got.Before(slots[len(slots)-1]):
			t.Fatalf("%v: Latest(%v, %v) is %v", s, after, until, got)
		default:
			if next, ok := s.Next(got); ok && !next.After(until) {
				t.Fatalf("%v: Latest(%v, %v) is %v, but %v follows", s, after, until, got, next)
			}
		}
	})
}

// TestNextIsOrdered checks what bisection relies on: from an earlier time, Next
// is the same slot or an earlier one, and no slot is passed over.
func TestNextIsOrdered(t *testing.T) {
	t.Parallel()
	zones := allZones(t)
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t, zones)
		if s.Spec().Every() > 0 {
			t.Skip("counts from the time given")
		}
		from := drawTime(t)
		next, ok := s.Next(from)
		if !ok {
			return
		}
		between := from.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(from))-1).Draw(t, "between")))
		if got, ok := s.Next(between); !ok || !got.Equal(next) {
			t.Fatalf("%v: Next(%v) is %v, but Next(%v) is %v", s, from, next, between, got)
		}
	})
}

// TestLatestIsFast would not end if it went from slot to slot.
func TestLatestIsFast(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]time.Time{
		"@every 1s":       date(9000, 1, 1),
		"* * * * *":       date(9000, 1, 1),
		"* * 1 1 *":       time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC),
		"59 23 28 2 *":    time.Date(8999, 2, 28, 23, 59, 0, 0, time.UTC),
		"0 0 29 2 *":      date(8996, 2, 29),
		"0 0 29 2 */7":    date(8984, 2, 29),
		"*/7 1-2 * 6 mon": time.Date(8999, 6, 24, 2, 56, 0, 0, time.UTC),
	} {
		s := schedule(t, spec, "", "")
		got, ok := s.Latest(date(1900, 1, 1), date(9000, 1, 1))
		if !ok || !got.Equal(want) {
			t.Errorf("%s: got %v, %v, want %v", spec, got, ok, want)
		}
		if got := s.Count(date(1900, 1, 1), date(9000, 1, 1), 100); got != 100 && spec != "0 0 29 2 */7" {
			t.Errorf("%s: counted %d, want to stop at 100", spec, got)
		}
	}
}
