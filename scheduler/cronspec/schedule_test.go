package cronspec_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/scheduler/cronspec"
)

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, spec, zone, dst, after, want string }{
		// Midnight is missing where the clocks go forward at midnight. A job of the
		// day before must not slip into that day.
		{
			"Havana, a Saturday job", "0 0 * * 6", "America/Havana", "",
			"2025-03-07T00:00:00Z", "2025-03-08T05:00:00Z 2025-03-15T04:00:00Z",
		},
		{
			"Havana, a Sunday job", "0 0 * * 0", "America/Havana", "",
			"2025-03-08T00:00:00Z", "2025-03-09T05:00:00Z 2025-03-16T04:00:00Z",
		},
		{
			"Havana, a Sunday job by the wall", "0 0 * * 0", "America/Havana", "wall",
			"2025-03-08T00:00:00Z", "2025-03-16T04:00:00Z",
		},
		{
			"Santiago", "30 0 * * *", "America/Santiago", "",
			"2025-09-06T00:00:00Z", "2025-09-06T04:30:00Z 2025-09-07T04:00:00Z 2025-09-08T03:30:00Z",
		},
		{
			"Cairo, a Friday job", "0 0 * * fri", "Africa/Cairo", "",
			"2025-04-20T00:00:00Z", "2025-04-24T22:00:00Z 2025-05-01T21:00:00Z",
		},
		{
			"Cairo, a Thursday job", "0 0 * * thu", "Africa/Cairo", "",
			"2025-04-20T00:00:00Z", "2025-04-23T22:00:00Z 2025-04-30T21:00:00Z",
		},
		{
			"Beirut", "@daily", "Asia/Beirut", "",
			"2025-03-29T00:00:00Z", "2025-03-29T22:00:00Z 2025-03-30T21:00:00Z",
		},
		{
			"Azores", "0 0 * * *", "Atlantic/Azores", "",
			"2025-03-29T12:00:00Z", "2025-03-30T01:00:00Z 2025-03-31T00:00:00Z",
		},
		{
			"Azores, a Saturday job", "0 0 * * 6", "Atlantic/Azores", "",
			"2025-03-28T12:00:00Z", "2025-03-29T01:00:00Z 2025-04-05T00:00:00Z",
		},

		// Half an hour back, and half an hour forward.
		{
			"Lord Howe, nine o'clock", "0 9 * * *", "Australia/Lord_Howe", "",
			"2025-04-05T00:00:00Z", "2025-04-05T22:30:00Z 2025-04-06T22:30:00Z",
		},
		{
			"Lord Howe, a repeated time", "45 1 * * *", "Australia/Lord_Howe", "",
			"2025-04-05T00:00:00Z", "2025-04-05T14:45:00Z 2025-04-06T15:15:00Z",
		},
		{
			"Lord Howe, a repeated time by the wall", "45 1 * * *", "Australia/Lord_Howe", "wall",
			"2025-04-05T00:00:00Z", "2025-04-05T14:45:00Z 2025-04-05T15:15:00Z 2025-04-06T15:15:00Z",
		},
		{
			"Lord Howe, a skipped time", "15 2 * * *", "Australia/Lord_Howe", "",
			"2025-10-04T00:00:00Z", "2025-10-04T15:30:00Z 2025-10-05T15:15:00Z",
		},

		{
			"several slots in the gap run once", "0,15,30 2 * * *", "Europe/Berlin", "",
			"2025-03-29T12:00:00Z", "2025-03-30T01:00:00Z 2025-03-31T00:00:00Z",
		},
		{
			"a slot at the gap's end is not doubled", "0 2,3 * * *", "Europe/Berlin", "",
			"2025-03-29T12:00:00Z", "2025-03-30T01:00:00Z 2025-03-31T00:00:00Z",
		},
		{
			"a rhythm follows the wall in a gap", "*/30 2 * * *", "Europe/Berlin", "",
			"2025-03-29T12:00:00Z", "2025-03-31T00:00:00Z 2025-03-31T00:30:00Z",
		},
		{
			"a fixed time runs once in a fold", "30 2 * * *", "Europe/Berlin", "",
			"2025-10-25T12:00:00Z", "2025-10-26T00:30:00Z 2025-10-27T01:30:00Z",
		},
		{
			"also when asked in the middle of the fold", "30 2 * * *", "Europe/Berlin", "",
			"2025-10-26T01:10:00Z", "2025-10-27T01:30:00Z",
		},
		{
			"a rhythm follows the wall in a fold", "30 * * * *", "Europe/Berlin", "",
			"2025-10-26T00:00:00Z", "2025-10-26T00:30:00Z 2025-10-26T01:30:00Z 2025-10-26T02:30:00Z",
		},

		// The date line moved: a day never happened, and nothing makes it good.
		{
			"Apia", "0 12 * * *", "Pacific/Apia", "",
			"2011-12-29T12:00:00Z", "2011-12-29T22:00:00Z 2011-12-30T22:00:00Z",
		},
		{
			"Apia, the missing day", "0 0 30 12 *", "Pacific/Apia", "",
			"2011-12-01T00:00:00Z", "2012-12-29T10:00:00Z",
		},
		{
			"Kwajalein, the missing day", "0 12 21 8 *", "Pacific/Kwajalein", "",
			"1993-08-01T00:00:00Z", "1994-08-21T00:00:00Z",
		},

		{"leap days across 2100", "0 0 29 2 *", "", "", "2096-02-01T00:00:00Z", "2096-02-29T00:00:00Z 2104-02-29T00:00:00Z"},
		{
			"leap days on a Sunday", "0 0 29 2 */7", "", "", "2032-02-29T00:00:00Z",
			"2060-02-29T00:00:00Z 2088-02-29T00:00:00Z 2128-02-29T00:00:00Z",
		},
		{"both days with a star", "0 0 */2 * 1", "", "", "2025-01-01T00:00:00Z", "2025-01-13T00:00:00Z 2025-01-27T00:00:00Z"},
		{"both days with the other star", "0 0 13 * */5", "", "", "2025-01-01T00:00:00Z", "2025-04-13T00:00:00Z 2025-06-13T00:00:00Z"},
		{"either day", "0 0 1,15 * 1", "", "", "2025-01-01T00:00:00Z", "2025-01-06T00:00:00Z 2025-01-13T00:00:00Z 2025-01-15T00:00:00Z"},
		{"a list that begins with a star", "0 0 *,1 * 1", "", "", "2025-01-01T00:00:00Z", "2025-01-06T00:00:00Z 2025-01-13T00:00:00Z"},
		{"Sunday is 7", "0 0 * * 7", "", "", "2025-01-01T00:00:00Z", "2025-01-05T00:00:00Z 2025-01-12T00:00:00Z"},
		{
			"Friday to Sunday", "0 0 * * 5-7", "", "", "2025-01-01T00:00:00Z",
			"2025-01-03T00:00:00Z 2025-01-04T00:00:00Z 2025-01-05T00:00:00Z 2025-01-10T00:00:00Z",
		},
		{
			"Friday and Sunday", "0 0 * * FRI-SUN/2", "", "", "2025-01-01T00:00:00Z",
			"2025-01-03T00:00:00Z 2025-01-05T00:00:00Z 2025-01-10T00:00:00Z",
		},
		{"n/k", "50/5 0 * * *", "", "", "2025-01-01T00:00:00Z", "2025-01-01T00:50:00Z 2025-01-01T00:55:00Z 2025-01-02T00:50:00Z"},

		// On 31 December of leap years after 2037 ZoneBounds ends in the past.
		{
			"the last day of a leap year", "0 12 * * *", "America/New_York", "",
			"2040-12-30T18:00:00Z", "2040-12-31T17:00:00Z 2041-01-01T17:00:00Z",
		},
		{"local mean time", "0 0 * * *", "Africa/Monrovia", "", "1970-01-01T00:00:00Z", "1970-01-01T00:44:30Z"},
		{"strictly after", "0 0 * * *", "", "", "2025-01-01T00:00:00Z", "2025-01-02T00:00:00Z"},
		{"a fraction of a second before", "0 0 * * *", "", "", "2024-12-31T23:59:59.999999999Z", "2025-01-01T00:00:00Z"},
		{"every", "@every 90s", "Europe/Berlin", "", "2025-01-01T00:00:00.7001Z", "2025-01-01T00:01:30.7Z 2025-01-01T00:03:00.7Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := schedule(t, c.spec, c.zone, c.dst)
			at, err := time.Parse(time.RFC3339Nano, c.after)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for range strings.Fields(c.want) {
				next, ok := s.Next(at)
				if !ok {
					break
				}
				got = append(got, next.Format(time.RFC3339Nano))
				at = next
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestNextEnds(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"* * * * *", "0 0 29 2 *", "@every 8784h", "@yearly"} {
		s := schedule(t, spec, "Europe/Berlin", "")
		for _, after := range []time.Time{date(9999, 12, 31).Add(24*time.Hour - time.Second), date(250000, 1, 1), time.Unix(math.MaxInt64, 0)} {
			if got, ok := s.Next(after); ok {
				t.Errorf("%v: Next(%v) is %v, want none", s, after, got)
			}
		}
		for _, after := range []time.Time{{}, date(-50000, 1, 1), time.Unix(math.MinInt64, 0)} {
			if got, ok := s.Next(after); !ok || !got.After(after) {
				t.Errorf("%v: Next(%v) is %v, %v, want a slot", s, after, got, ok)
			}
		}
	}
	if got, ok := schedule(t, "59 23 31 12 *", "", "").Next(date(9999, 12, 31)); !ok || got.Year() != 9999 {
		t.Errorf("got %v, %v, want the last minute of 9999", got, ok)
	}
}

// TestLeapYearEnds looks at the day on which ZoneBounds is wrong, in each zone.
func TestLeapYearEnds(t *testing.T) {
	t.Parallel()
	for _, zone := range allZones(t) {
		loc := location(t, zone)
		for _, year := range []int{2040, 2096, 2104, 2400} {
			from := date(year, 12, 29)
			ticks := watch(loc, from, from.Add(6*24*time.Hour), 15*60)
			s := schedule(t, "30 23 * * *", zone, "")
			at := from.Add(6 * time.Hour)
			for _, want := range simulate(newMatcher("30 23 * * *"), true, ticks, 15*60) {
				if !want.After(at) {
					continue
				}
				if got, ok := s.Next(at); !ok || !got.Equal(want) {
					t.Fatalf("%v: Next(%v) is %v, want %v", s, at, got, want)
				}
				at = want
			}
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	s := schedule(t, "  0\t9  * * 1-5 ", "Europe/Berlin", "")
	if got, want := s.String(), "0 9 * * 1-5 Europe/Berlin vixie"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := s.Spec().String(), "0 9 * * 1-5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := schedule(t, "@daily", "", "wall"); got.String() != "@daily UTC wall" || got.Location() != time.UTC {
		t.Errorf("got %q in %v, want UTC", got, got.Location())
	}
	for _, c := range []struct{ spec, zone, dst, want string }{
		{"@daily", "Local", "", "differs between hosts"},
		{"@daily", "local", "", "differs between hosts"},
		{"@daily", "localtime", "", "differs between hosts"},
		{"@daily", "posixrules", "", "differs between hosts"},
		{"@daily", "right/UTC", "", `leave out "right/"`},
		{"@daily", "posix/UTC", "", `leave out "posix/"`},
		{"@daily", "Europe/Atlantis", "", "is unknown; use a name such as"},
		{"@daily", "../../etc/passwd", "", "is unknown"},
		{"@daily", "Europe", "", "is unknown"},
		{"@daily", "Europe/Berlin\nUTC", "", `"Europe/Berlin\nUTC" is unknown`},
		{"@daily", strings.Repeat("x", 100000), "", "is unknown"},
		{"@daily", "UTC", "posix", "use vixie or wall"},
		{"@daily", "UTC", "Vixie", "use vixie or wall"},
		{"0 0 31 2 *", "UTC", "", "never fires"},
		// Berlin skips 02:30 on exactly these days.
		{"30 2 25-31 3 */7", "Europe/Berlin", "wall", "never fires in Europe/Berlin"},
	} {
		_, err := cronspec.New(c.spec, c.zone, c.dst)
		checkRefusal(t, c.spec+" "+c.zone+" "+c.dst, err, c.want)
	}
	schedule(t, "30 2 25-31 3 */7", "Europe/Berlin", "vixie")
}

func checkRefusal(t *testing.T, subject string, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("%.60q: accepted, want %q", subject, want)
	case !errors.Is(err, cronspec.ErrInvalid):
		t.Errorf("%.60q: %v is not ErrInvalid", subject, err)
	case !strings.Contains(err.Error(), want):
		t.Errorf("%.60q: got %q, want %q in it", subject, err, want)
	case strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }):
		t.Errorf("%.60q: %q is not one plain line", subject, err)
	case !strings.Contains(err.Error(), "; "):
		t.Errorf("%.60q: %q does not say what to do", subject, err)
	case len(err.Error()) > 2000:
		t.Errorf("%.60q: the message has %d bytes", subject, len(err.Error()))
	}
}

// The times that clocks skip at once are one slot, with that at which they go on. Debian's cron 3.0pl1-162 ran 0-59/15 2 four times at 03:00, and 0 2,3 twice.
func TestSkipped(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		spec, zone, dst string
		want            int
	}{
		{"0-59/15 2 * * *", "America/New_York", "vixie", 4},
		{"0 2,3 * * *", "America/New_York", "vixie", 2}, // one of which is 03:00 itself
		{"0 0-23 * * *", "America/New_York", "vixie", 2},
		{"30 2 * * *", "America/New_York", "vixie", 1},
		{"*/15 2 * * *", "America/New_York", "vixie", 0},
		{"0-59/15 2 * * *", "America/New_York", "wall", 0},
		{"0-59/15 2 * * *", "UTC", "vixie", 0},
		{"0-59/15 3 * * *", "America/New_York", "vixie", 0},
		{"0-59/15 2 * * 1", "America/New_York", "vixie", 0}, // clocks jump on Sundays
		{"0,30 2 * * 0", "Europe/Berlin", "vixie", 2},
		{"@daily", "America/Havana", "vixie", 1},
		{"@every 1h", "America/New_York", "vixie", 0},
	} {
		s, err := cronspec.New(c.spec, c.zone, c.dst)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Skipped(from, from.AddDate(8, 0, 0)); got != c.want {
			t.Errorf("%s in %s (%s): %d, not %d", c.spec, c.zone, c.dst, got, c.want)
		}
	}
}
