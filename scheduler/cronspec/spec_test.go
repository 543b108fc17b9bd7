package cronspec_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/scheduler/cronspec"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		"* * * * *",
		"\t */5\t0-23  1,15 * 1-5 ",
		"0 0 1 1 *",
		"*/60 */24 */31 */12 */7",
		"0-0 0 1 JAN Sun",
		"0 0 * jul-Sep wed,THU-sat",
		"00 09 01 01 00",
		"0 0 * * 0-7",
		"0 0 * * sun-sat",
		"0 0 * * mon-7",
		"0 0 * * 7,0",
		"5/10 3/4 2/7 4/3 1/2",
		"1,2,3-10/4,*/30 * * * *",
		"0 0 29 2 *",
		"0 0 31 2 mon", // either day: Mondays
		"@hourly", "@DAILY", " @Midnight ", "@weekly", "@monthly", "@yearly", "@annually",
		"@every 1s", "@EVERY  1h30m", "@every 8784h", "@every 1.5h", "@every 3000ms",
		strings.Repeat(" ", 247) + "* * * * *",
	} {
		if _, err := cronspec.Parse(spec); err != nil {
			t.Errorf("%q: %v, want it accepted", spec, err)
		}
	}
}

// A spec of another tool is refused with the spec to write, which can be parsed; one that has no equal here, without one.
func TestParseSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"rate(5 minutes)":                 "is of Amazon EventBridge; write @every 5m",
		"rate(1 day)":                     "write @every 24h",
		"rate(500 days)":                  "of Amazon EventBridge",
		"cron(0 12 * * ? *)":              "cron(…) is of Amazon EventBridge; write 0 12 * * *",
		"cron(0 9 ? * MON-FRI *)":         "write 0 9 * * mon-fri",
		"cron(0 9 ? * 2 *)":               "write 0 9 * * 2, where day 1 is Monday, and not Sunday",
		"cron(0 9 L * ? *)":               "of Amazon EventBridge",
		"0 0 12 * * ?":                    "6 fields; write five: minute, hour, day of month, month, day of week (no seconds, no year); write 0 12 * * *",
		"0 0 12 * * MON":                  "; write 0 12 * * MON",
		"0 0 12 ? * 2 *":                  "; write 0 12 * * 2, where day 1 is Monday",
		"*/10 * * * * *":                  "; write @every 10s",
		"*/5 * * * * ?":                   "; write @every 5s",
		"* * * * * *":                     "; write @every 1s",
		"*/5 0 9 * * *":                   "(no seconds, no year)",
		"0 4 1 1 * 2027":                  "; write 0 4 1 1 *",
		"0 0 12 1 1 ? 2027":               "7 fields",
		"5m":                              "; write @every 5m",
		"every 15 minutes":                "; write @every 15m",
		"1 hour":                          "; write @every 1h",
		"daily":                           "; write @daily",
		"*-*-* 02:30:00":                  "; this is OnCalendar of systemd",
		"Mon..Fri *-*-* 09:00":            "; this is OnCalendar of systemd",
		"$SPEC":                           "a variable is not expanded in a spec: write its value",
		"${MINUTE} 3 * * *":               "a variable is not expanded in a spec; write its value",
		"{{ .Values.cron }}":              "3 fields",
		"rate(99999999999999999999 days)": "of Amazon EventBridge",
	} {
		_, err := cronspec.Parse(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, which does not contain %q", spec, err, want)
			continue
		}
		if _, right, has := strings.Cut(err.Error(), "; write "); has {
			if _, right, again := strings.Cut(right, "; write "); again {
				right, _, _ = strings.Cut(right, ", where")
				if _, err := cronspec.Parse(right); err != nil {
					t.Errorf("%q: it is to write %q, which is refused: %v", spec, right, err)
				}
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, want string }{
		{"", "it is empty; write five fields"},
		{" \t", "it is empty; write five fields"},
		{"* * * *", "4 fields; write five: minute, hour,"},
		{"0 * * * * *", "6 fields; write five"},
		{"daily", "1 field; write five"},
		{"60 * * * *", `minute, item "60": 60 is out of range; use 0-59`},
		{"* 24 * * *", `hour, item "24": 24 is out of range; use 0-23`},
		{"* * 0 * *", `day of month, item "0": 0 is out of range; use 1-31`},
		{"* * * 13 *", `month, item "13": 13 is out of range; use 1-12 or jan-dec`},
		{"* * * * 8", `day of week, item "8": 8 is out of range; use 0-7 or sun-sat`},
		{"99999999999999999999 * * * *", "is not a value; use 0-59"},
		{", * * * *", `minute, item "": it is empty; take out the extra comma`},
		{"1,,2 * * * *", "take out the extra comma"},
		{"1, * * * *", "take out the extra comma"},
		{"+5 * * * *", `"+5" is not a value; use 0-59`},
		{"-5 * * * *", `item "-5": a number is missing`},
		{"5- * * * *", `item "5-": a number is missing`},
		{"*-5 * * * *", "* stands alone or before a step"},
		{"** * * * *", "* stands alone or before a step"},
		{"1-*/2 * * * *", "* stands alone or before a step"},
		{"5-1 * * * *", "the range runs backwards; write two items: 5-59,0-1"},
		{"* * * * fri-mon", "the range runs backwards; write two items: fri-6,0-mon"},
		{"* * * * 5-0", "the range runs backwards"},
		{"1-2-3 * * * *", `"2-3" is not a value`},
		{"*/0 * * * *", "step 0 is out of range for 60 values; use 1-60"},
		{"*/61 * * * *", "step 61 is out of range for 60 values; use 1-60"},
		{"10-20/12 * * * *", "step 12 is out of range for 11 values; use 1-11"},
		{"* * * * */8", "step 8 is out of range for 7 values"},
		{"* * * * 7/2", "no value follows 7; use 0 before the step"},
		{"*/-5 * * * *", "the step after / is no number; use 1-60"},
		{"*/ * * * *", "the step after / is no number"},
		{"*/5/5 * * * *", "the step after / is no number"},
		{"/5 * * * *", "a number is missing"},
		{"* * ? * *", "? is not supported; use *"},
		{"* * L * *", "? L W # H ~ R of other crons are not supported"},
		{"* * 15W * *", "? L W # H ~ R of other crons are not supported"},
		{"* * * * 5#2", "? L W # H ~ R of other crons are not supported"},
		{"H * * * *", "? L W # H ~ R of other crons are not supported"},
		{"0~30 * * * *", "? L W # H ~ R of other crons are not supported"},
		{"R * * * *", "? L W # H ~ R of other crons are not supported"},
		{"* * * * friday", "is not a value; use 0-7 or sun-sat"},
		{"* * * mon *", `month, item "mon"`},
		{"jan * * * *", `minute, item "jan"`},
		{"1.5 * * * *", "is not a value"},
		{"0x5 * * * *", "is not a value"},
		{"0 0 31 2 *", "it never fires: no day matches 31 2 *"},
		{"0 0 30 feb *", "it never fires"},
		{"0 0 31 feb,apr,jun,sep,nov *", "it never fires"},
		{"TZ=UTC * * * * *", "the zone is set separately, with --time-zone or time_zone"},
		{"CRON_TZ=Asia/Tokyo\t* * * * *", "the zone is set separately"},
		{"TZ=", "the zone is set separately"},
		{"cron_tz=X", "the zone is set separately"},
		{"@reboot now", "a macro stands alone"},
		{"@reboots", `unknown macro "@reboots"`},
		{"@fortnightly", `unknown macro "@fortnightly"; use @hourly`},
		{"@", "unknown macro"},
		{"@daily 5", "a macro stands alone"},
		{"@every", "@every takes one duration"},
		{"@every 1h 5m", "@every takes one duration"},
		{"@every 1d", `"1d" is not a duration`},
		{"@every 5", `"5" is not a duration`},
		{"@every +5m", "no sign"},
		{"@every -5m", "no sign"},
		{"@every 0s", "is out of range; use 1s to 8784h"},
		{"@every 999ms", "is out of range"},
		{"@every 8784h1s", "is out of range"},
		{"@every 1500ms", "has a fraction of a second"},
		{"@every5m", "unknown macro"},
		{"* * * * *\n", "control character"},
		{"* * *\r\n* *", "control character"},
		{"* * * * *\x00", "control character"},
		{"* * * *\v*", "control character"},
		{"＊ * * * *", "not ASCII"},
		{"* * * * \u00a0*", "not ASCII"},
		{"* * * * \xff", "not ASCII"},
		{strings.Repeat("1,", 200000) + "1 * * * *", "bytes; use at most 256"},
		{strings.Repeat(" ", 248) + "* * * * *", "the spec has 257 bytes"},
	} {
		_, err := cronspec.Parse(c.spec)
		checkRefusal(t, c.spec, err, c.want)
	}
}

func TestSpecEvery(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]time.Duration{"@every 90s": 90 * time.Second, "@hourly": 0, "* * * * *": 0} {
		got, err := cronspec.Parse(spec)
		if err != nil || got.Every() != want {
			t.Errorf("%s: got %v, %v, want %v", spec, got.Every(), err, want)
		}
	}
}

func TestParseDST(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]cronspec.DST{"": cronspec.Vixie, "vixie": cronspec.Vixie, "wall": cronspec.Wall} {
		if got, err := cronspec.ParseDST(name); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", name, got, err, want)
		}
	}
	_, err := cronspec.ParseDST("summer\ntime")
	checkRefusal(t, "summer time", err, "use vixie or wall")
}
