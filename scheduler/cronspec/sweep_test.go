package cronspec_test

import (
	"archive/zip"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// zoneNames lists the zones of Go's own copy of the tz database, and of several
// names for the same zone only one.
var zoneNames = sync.OnceValues(func() ([]string, error) {
	goroot, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	files, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	defer files.Close()
	var names []string
	seen := map[uint32]bool{}
	for _, f := range files.File {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" && !seen[f.CRC32] {
			seen[f.CRC32] = true
			names = append(names, f.Name)
		}
	}
	return names, nil
})

func allZones(t testing.TB) []string {
	t.Helper()
	names, err := zoneNames()
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 200 {
		t.Fatalf("got %d zones, want some hundreds", len(names))
	}
	return names
}

// A change is one change of the clocks.
type change struct {
	zone string
	at   time.Time
	key  string // zones with the same key show the same around it
}

// changes finds the changes of all zones in [from, to), each once if several
// zones agree for a while on either side.
func changes(t testing.TB, from, to time.Time, around time.Duration) []change {
	t.Helper()
	var found []change
	seen := map[string]bool{}
	for _, zone := range allZones(t) {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range offsetChanges(loc, from, to) {
			var key strings.Builder
			for _, near := range append(offsetChanges(loc, at.Add(-around), at.Add(around)), at.Add(-around)) {
				_, offset := near.In(loc).Zone()
				fmt.Fprint(&key, near.Unix(), " ", offset, " ")
			}
			if !seen[key.String()] {
				seen[key.String()] = true
				found = append(found, change{zone, at, key.String()})
			}
		}
	}
	return found
}

// offsetChanges looks at the clock each week, and where the offset differs from
// the week before, each hour, then each minute and each second.
func offsetChanges(loc *time.Location, from, to time.Time) []time.Time {
	var found []time.Time
	var search func(from, to time.Time, strides []time.Duration)
	search = func(from, to time.Time, strides []time.Duration) {
		stride := strides[0]
		_, before := from.In(loc).Zone()
		for t := from; t.Before(to); t = t.Add(stride) {
			_, after := t.Add(stride).In(loc).Zone()
			switch {
			case before == after:
			case len(strides) == 1:
				found = append(found, t.Add(stride))
			default:
				search(t, t.Add(stride), strides[1:])
			}
			before = after
		}
	}
	search(from, to, []time.Duration{7 * 24 * time.Hour, time.Hour, time.Minute, time.Second})
	return found
}

var sweepSpecs = []string{
	"* * * * *",
	"*/15 * * * *",
	"*/7 1-3 * * *",
	"7 * * * *",
	"@hourly",
	"0 */2 * * *",
	"30 */3 * * *",
	"* 2 * * *",
	"0 0 * * *",
	"30 0 * * *",
	"30 1 * * *",
	"0 2 * * *",
	"15,30,45 2 * * *",
	"59 2 * * *",
	"0 3 * * *",
	"1/20 0-4 * * *",
	"0-59/10 22-23,0-5 * * *",
	"30 23 * * sun",
	"0 0 * * 6",
	"0 1 * * 5-7",
	"30 2 1-7,25-31 * sun",
	"30 2 */2 * 0,mon",
	"0 0 29-31 3,oct *",
	"45 23 */3 mar-nov *",
	"0 9 * * *",
	"0,30 12 * * *",
}

// TestSweep compares Next with the oracle around each change of the clocks from
// 2024 to 2027, in each zone.
func TestSweep(t *testing.T) {
	t.Parallel()
	all := changes(t, date(2024, 1, 1), date(2028, 1, 1), 3*24*time.Hour)
	if len(all) < 100 {
		t.Fatalf("got %d changes of the clocks, want more than a hundred", len(all))
	}
	if testing.Short() {
		all = every(all, 10)
	}
	for _, c := range all {
		compare(t, c, 48*time.Hour, 60)
	}
	t.Logf("compared %d changes", len(all))
}

// TestSweepHistory does the same for changes since 1880, when offsets had
// seconds. There are thousands: it takes one in many.
func TestSweepHistory(t *testing.T) {
	t.Parallel()
	all := changes(t, date(1880, 1, 1), date(2045, 1, 1), 24*time.Hour)
	n := 80
	if testing.Short() {
		n = 400
	}
	for _, c := range every(all, n) {
		step := int64(60)
		if !wholeMinutes(t, c) {
			step = 1
		}
		compare(t, c, 5*time.Hour, step)
	}
	t.Logf("compared one in %d of %d changes", n, len(all))
}

func wholeMinutes(t testing.TB, c change) bool {
	loc := location(t, c.zone)
	_, before := c.at.Add(-time.Second).In(loc).Zone()
	_, after := c.at.In(loc).Zone()
	return before%60 == 0 && after%60 == 0 && c.at.Unix()%60 == 0
}

// compare runs through the window with Next, and also starts it at odd times
// close to the change.
func compare(t *testing.T, c change, window time.Duration, step int64) {
	t.Helper()
	from, to := c.at.Add(-window), c.at.Add(window)
	ticks := watch(location(t, c.zone), from.Add(-4*time.Hour), to, step)
	for _, spec := range sweepSpecs {
		m := newMatcher(spec)
		for _, dst := range []cronspec.DST{cronspec.Vixie, cronspec.Wall} {
			s := schedule(t, spec, c.zone, string(dst))
			var want []time.Time
			for _, run := range simulate(m, dst == cronspec.Vixie, ticks, step) {
				if run.After(from) {
					want = append(want, run)
				}
			}
			if !agrees(t, s, want, from, to) {
				return
			}
			for _, d := range []time.Duration{-181, -121, -61, -31, -1, 0, 1, 29, 30, 31, 59, 60, 61, 119, 120, 179, 180, 181} {
				start := c.at.Add(d*time.Minute - time.Millisecond)
				got, ok := s.Next(start)
				for len(want) > 0 && !want[0].After(start) {
					want = want[1:]
				}
				if len(want) > 0 && (!ok || !got.Equal(want[0])) || len(want) == 0 && ok && got.Before(to) {
					t.Errorf("%v: Next(%v) is %v, want the first of %v", s, start, got, head(want))
					return
				}
			}
		}
	}
}

// agrees checks the slots in (from, to). A spec of each minute is followed near
// the middle only: the rest is the same from minute to minute.
func agrees(t *testing.T, s *cronspec.Schedule, want []time.Time, from, to time.Time) bool {
	t.Helper()
	if len(want) > 200 {
		middle := from.Add(to.Sub(from) / 2)
		from, to = middle.Add(-4*time.Hour), middle.Add(4*time.Hour)
	}
	for _, w := range want {
		if !w.After(from) || !w.Before(to) {
			continue
		}
		got, ok := s.Next(from)
		if !ok || !got.Equal(w) {
			t.Errorf("%v: Next(%v) is %v, want %v", s, from, got, w)
			return false
		}
		from = got
	}
	if got, ok := s.Next(from); ok && got.Before(to) {
		t.Errorf("%v: Next(%v) is %v, want none before %v", s, from, got, to)
		return false
	}
	return true
}

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

func every[T any](all []T, n int) []T {
	var some []T
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

func head[T any](all []T) []T { return all[:min(3, len(all))] }

func location(t testing.TB, zone string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func schedule(t testing.TB, spec, zone, dst string) *cronspec.Schedule {
	t.Helper()
	s, err := cronspec.New(spec, zone, dst)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
