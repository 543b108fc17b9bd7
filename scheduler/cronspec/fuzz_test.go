package cronspec_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/scheduler/cronspec"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"* * * * *", "0 9 * * mon-fri", "*/5,7-9/2 1 */2 jan 5-7", "@every 1h", "@daily", "@reboot", "TZ=UTC\t* * * * *",
		"CRON_TZ=X", "0 0 31 2 *", "*/61 * * * *", "1,, * * * *", "+5 *-5 L W 5#3", "\x00\n", "＊",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := cronspec.Parse(text)
		if err != nil {
			if !errors.Is(err, cronspec.ErrInvalid) {
				t.Fatalf("%q: %v is not ErrInvalid", text, err)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q: %q is not one plain line", text, err)
			}
			if !strings.Contains(err.Error(), "; ") {
				t.Fatalf("%q: %q does not say what to do", text, err)
			}
			return
		}
		again, err := cronspec.Parse(spec.String())
		if err != nil || again.String() != spec.String() || again.Every() != spec.Every() {
			t.Fatalf("%q: %q does not parse to itself: %q, %v", text, spec, again, err)
		}
	})
}

func FuzzNext(f *testing.F) {
	zones := allZones(f)
	for i, seed := range sweepSpecs {
		f.Add(seed, uint16(i*17), int64(1_700_000_000+i*1_000_003), i%2 == 0)
	}
	f.Add("@every 1h", uint16(3), int64(0), false)
	f.Add("0 0 29 2 */7", uint16(3), int64(4_000_000_000), false)
	f.Fuzz(func(t *testing.T, spec string, zone uint16, seconds int64, wall bool) {
		dst := "vixie"
		if wall {
			dst = "wall"
		}
		s, err := cronspec.New(spec, zones[int(zone)%len(zones)], dst)
		if err != nil {
			return
		}
		// Years 1900 to 9999.
		const begin, end = -2_208_988_800, 253_402_300_800
		after := time.Unix(begin+int64(uint64(seconds)%(end-begin)), 0).UTC()
		next, ok := s.Next(after)
		if !ok {
			return
		}
		if !next.After(after) {
			t.Fatalf("%v: Next(%v) is %v", s, after, next)
		}
		if s.Spec().Every() > 0 {
			return
		}
		const day = 24 * time.Hour
		until, step := after.Truncate(time.Minute).Add(day), int64(60)
		if !wholeMinutes(t, change{zone: s.Location().String(), at: after.Truncate(time.Minute)}) {
			until, step = after.Truncate(time.Minute).Add(2*time.Hour), 1
		}
		ticks := watch(s.Location(), after.Truncate(time.Minute).Add(-4*time.Hour), until, step)
		for _, run := range simulate(newMatcher(spec), !wall, ticks, step) {
			if run.After(after) {
				if !run.Equal(next) {
					t.Fatalf("%v: Next(%v) is %v, want %v", s, after, next, run)
				}
				return
			}
		}
		if next.Before(until) {
			t.Fatalf("%v: Next(%v) is %v, want none before %v", s, after, next, until)
		}
	})
}
