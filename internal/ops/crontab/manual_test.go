package crontab_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/ops/crontab"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// A form is something that can stand in a crontab.
type form struct {
	text string
	want string // all entries as show writes them, or how the message begins

	// cron says what Debian's cron 3.0pl1-162 does instead, or of itself. It was
	// asked: crontab -n for what it takes, and a daemon for what it runs, with
	// which input and settings.
	cron string
}

func show(entries []crontab.Entry) string {
	var lines []string
	for _, e := range entries {
		line := fmt.Sprintf("%s | %s", e.Spec, e.Command)
		if e.Name != "" {
			line = e.Name + ": " + line
		}
		if e.Stdin != "" {
			line += fmt.Sprintf(" | in %q", e.Stdin)
		}
		if len(e.Env) > 0 {
			line += fmt.Sprintf(" | env %q", e.Env)
		}
		if e.Zone != "" {
			line += " | zone " + e.Zone
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// manual goes through crontab(5) of Debian 12. What the page leaves open, such
// as macros, is there as cron has it.
var manual = []struct {
	topic string
	forms []form
}{
	{"lines", []form{
		{"", "", ""},
		{"\n \n\t\n@daily x\n", "@daily | x", ""},
		{"# comment\n \t# comment\n#\n@daily x\n", "@daily | x", ""},
		{" \t 0  0\t*\t * * \t x\n", "0 0 * * * | x", ""},
		{"0 0 * * * x # no comment\n", "0 0 * * * | x # no comment", ""},
		{"A=1 # no comment\n@daily x\n", `@daily | x | env ["A=1 # no comment"]`, ""},
		{"@daily x", "@daily | x", "refuses a file whose last line has no newline"},
		{"@daily x \t\n", "@daily | x \t", ""},
		{"A=1\r\n@daily x\r\n", `@daily | x | env ["A=1"]`, "leaves the CR at the end of the command"},
		{"\ufeff@daily x\n", "@daily | x", "refuses the byte order mark"},
		{"@daily " + strings.Repeat("x", 998) + "\n", "@daily | " + strings.Repeat("x", 998), ""},
		{"@daily " + strings.Repeat("x", 999) + "\n", "@daily | " + strings.Repeat("x", 999), "refuses commands of 999 bytes"},
		{"A=" + strings.Repeat("x", 2000) + "\n@daily x\n", `@daily | x | env ["A=` + strings.Repeat("x", 2000) + `"]`, "cuts settings there"},
		{"@daily x\xff\n", "tab:1: the line is not UTF-8; save the file as UTF-8", "takes it"},
		{
			"@daily x \\\n--two\n", "tab:2: the backslash at the end of the line above does not join this one to it, as in cron; write one line, or call a script",
			"",
		},
		{"# x \\\n@daily y\n", "@daily | y", ""},
		{"run this\n", `tab:1: invalid schedule: spec "run this": 2 fields; write five: minute, hour, day of month, month, day of week (no seconds, no year)`, ""},
	}},
	{"settings", []form{
		{"A=1\n@daily x\n", `@daily | x | env ["A=1"]`, ""},
		{"\t A \t=\t 1 \t\n@daily x\n", `@daily | x | env ["A=1"]`, ""},
		{"A= two words \n@daily x\n", `@daily | x | env ["A=two words"]`, ""},
		{"A = = 1\n@daily x\n", `@daily | x | env ["A== 1"]`, ""},
		{"A=\"1\"\nB='2'\n@daily x\n", `@daily | x | env ["A=1" "B=2"]`, ""},
		{"A=\"  1  \"\n@daily x\n", `@daily | x | env ["A=  1  "]`, "takes off the blanks at the end, against its page"},
		{"A=\"it's\"\nB='say \"x\"'\n@daily x\n", `@daily | x | env ["A=it's" "B=say \"x\""]`, ""},
		{"A=a\"b\" c\n@daily x\n", `@daily | x | env ["A=a\"b\" c"]`, ""},
		{"'A B'=1\n\"C\"=2\n@daily x\n", `@daily | x | env ["A B=1" "C=2"]`, ""},
		{"A=\"1\n@daily x\n", `tab:1: the quote " is not closed; add one, or quote the quote with the other kind`, ""},
		{"A='1\"\n@daily x\n", `tab:1: the quote ' is not closed; add one, or quote the quote with the other kind`, ""},
		{"A=\"1\" # 2\n@daily x\n", `tab:1: " # 2" follows the closing quote; put the quotes around the whole value`, ""},
		{"A=\"\"\n@daily x\n", `@daily | x | env ["A="]`, ""},
		{"A=\n@daily x\n", `@daily | x | env ["A="]`, "refuses an empty value without quotes"},
		{"=1\n", "tab:1: the name before = is empty; write NAME=VALUE", "takes it"},
		{"A B=1\n", `tab:1: invalid schedule: spec "A B=1": 2 fields; write five: minute, hour, day of month, month, day of week (no seconds, no year)`, ""},
		{"export A=1\n", `tab:1: a setting is NAME=VALUE; leave export out`, ""},
		{"A=$HOME/bin:\\n%\n@daily x\n", `@daily | x | env ["A=$HOME/bin:\\n%"]`, ""},
		{"A=1\nB=$A\n@daily x\n", `@daily | x | env ["A=1" "B=$A"]`, ""},
		{"@daily x\nA=1\n@daily y\nA=2\n@daily z\n", "@daily | x\n@daily | y | env [\"A=1\"]\n@daily | z | env [\"A=2\"]", ""},
	}},
	{"variables", []form{
		{"SHELL=/bin/bash\n@daily x\n", `@daily | x | env ["SHELL=/bin/bash"]`, ""},
		{"HOME=/srv\n@daily x\n", `@daily | x | env ["HOME=/srv"]`, ""},
		{"PATH=/bin\n@daily $HOME/bin/x\n", `@daily | $HOME/bin/x | env ["PATH=/bin"]`, ""},
		{"USER=paul\n@daily x\n", `@daily | x | env ["USER=paul"]`, ""},
		{
			"LOGNAME=paul\n@daily x\n", "tab:1: LOGNAME is the user that runs the commands, and cron ignores such a line; remove it",
			"takes it and ignores it",
		},
		{"MAILTO=paul\n@daily x\n", `@daily | x | env ["MAILTO=paul"]`, "also mails what the command prints"},
		{"MAILTO=\"\"\n@daily x\n", `@daily | x | env ["MAILTO="]`, ""},
		{"MAILFROM=a\nCONTENT_TYPE=text/plain\n@daily x\n", `@daily | x | env ["MAILFROM=a" "CONTENT_TYPE=text/plain"]`, ""},
		{"TZ=Asia/Tokyo\n@daily x\n", `@daily | x | env ["TZ=Asia/Tokyo"]`, ""},
		{
			"CRON_TZ=Asia/Tokyo\n@daily x\nCRON_TZ=\"\"\n@daily y\n", "@daily | x | zone Asia/Tokyo\n@daily | y",
			"takes it for a variable; it is cronie's",
		},
		{
			"CRON_TZ=Mars/Base\n", `tab:1: invalid schedule: time zone "Mars/Base" is unknown; use a name such as Europe/Berlin, or UTC`,
			"takes it for a variable",
		},
		{"RANDOM_DELAY=45\n@daily x\n", `@daily | x | env ["RANDOM_DELAY=45"]`, "the same; cronie waits up to 45 minutes"},
	}},
	{"fields", []form{
		{"* * * * * x\n", "* * * * * | x", ""},
		{"59 23 31 12 7 x\n", "59 23 31 12 7 | x", ""},
		{"0 0 1 1 0 x\n", "0 0 1 1 0 | x", ""},
		{"007 08 09 010 00 x\n", "007 08 09 010 00 | x", ""},
		{"60 * * * * x\n", `tab:1: invalid schedule: spec "60 * * * *": minute, item "60": 60 is out of range; use 0-59`, ""},
		{"* 24 * * * x\n", `tab:1: invalid schedule: spec "* 24 * * *": hour, item "24": 24 is out of range; use 0-23`, ""},
		{"* * 0 * * x\n", `tab:1: invalid schedule: spec "* * 0 * *": day of month, item "0": 0 is out of range; use 1-31`, ""},
		{"* * 32 * * x\n", `tab:1: invalid schedule: spec "* * 32 * *": day of month, item "32": 32 is out of range; use 1-31`, ""},
		{
			"* * * 0 * x\n", `tab:1: invalid schedule: spec "* * * 0 *": month, item "0": 0 is out of range; use 1-12 or jan-dec`,
			"the same, against its page",
		},
		{"* * * 13 * x\n", `tab:1: invalid schedule: spec "* * * 13 *": month, item "13": 13 is out of range; use 1-12 or jan-dec`, ""},
		{"* * * * 8 x\n", `tab:1: invalid schedule: spec "* * * * 8": day of week, item "8": 8 is out of range; use 0-7 or sun-sat`, ""},
		{"* * * x\n", `tab:1: invalid schedule: spec "* * * x": 4 fields; write five: minute, hour, day of month, month, day of week (no seconds, no year)`, ""},
		{"* * * * /srv/x\n", `tab:1: only four fields are before the command "/srv/x"; write five: minute, hour, day of month, month, day of week`, ""},
		{"* * * * curl x\n", `tab:1: only four fields are before the command "curl"; write five: minute, hour, day of month, month, day of week`, ""},
		{"4294967301 * * * * x\n", `tab:1: invalid schedule: spec "4294967301 * * * *": minute, item "4294967301": 4294967301 is out of range; use 0-59`, "reads 5"},
		{"0 0 30 2 * x\n", `tab:1: invalid schedule: spec "0 0 30 2 *": it never fires: no day matches 30 2 * (day of month, month, day of week); correct these fields`, "takes it and never runs it"},
		{"0 0 29 2 * x\n", "0 0 29 2 * | x", ""},
	}},
	{"ranges and lists", []form{
		{"0 8-11 * * * x\n", "0 8-11 * * * | x", ""},
		{"1,2,5,9 0-4,8-12 * * * x\n", "1,2,5,9 0-4,8-12 * * * | x", ""},
		{"3-3 * * * * x\n", "3-3 * * * * | x", ""},
		{"0 0 * * 0-7 x\n", "0 0 * * 0-7 | x", ""},
		{"0 0 * * 5-7 x\n", "0 0 * * 5-7 | x", ""},
		{"*,5 5,* * * * x\n", "*,5 5,* * * * | x", ""},
		{"5-1 * * * * x\n", `tab:1: invalid schedule: spec "5-1 * * * *": minute, item "5-1": the range runs backwards; write two items: 5-59,0-1`, "takes it and never runs it"},
		{"0 0 * * 6-0 x\n", `tab:1: invalid schedule: spec "0 0 * * 6-0": day of week, item "6-0": the range runs backwards; write two items: 6-6,0-0`, "takes it and never runs it"},
		{"1,,2 * * * * x\n", `tab:1: invalid schedule: spec "1,,2 * * * *": minute, item "": it is empty; take out the extra comma`, ""},
		{"1, * * * * x\n", `tab:1: invalid schedule: spec "1, * * * *": minute, item "": it is empty; take out the extra comma`, ""},
		{"1, 2 * * * * x\n", `tab:1: invalid schedule: spec "1, 2 * * *": minute, item "": it is empty; take out the extra comma`, ""},
		{"5- * * * * x\n", `tab:1: invalid schedule: spec "5- * * * *": minute, item "5-": a number is missing; use 0-59 (no signs)`, ""},
		{"1-2-3 * * * * x\n", `tab:1: invalid schedule: spec "1-2-3 * * * *": minute, item "1-2-3": "2-3" is not a value; use 0-59`, "reads 1-2"},
		{"*-5 * * * * x\n", `tab:1: invalid schedule: spec "*-5 * * * *": minute, item "*-5": * stands alone or before a step; write * or */5`, "reads *"},
	}},
	{"steps", []form{
		{"0 0-23/2 * * * x\n", "0 0-23/2 * * * | x", ""},
		{"*/5 */2 */2 */3 */2 x\n", "*/5 */2 */2 */3 */2 | x", ""},
		{"1-9/2,30-40/5 * * * * x\n", "1-9/2,30-40/5 * * * * | x", ""},
		{"1-5/5 * * * * x\n", "1-5/5 * * * * | x", ""},
		{"*/60 * * * * x\n", "*/60 * * * * | x", ""},
		{"5/10 * * * * x\n", "5/10 * * * * | x", "refuses a step after a single number"},
		{"*/0 * * * * x\n", `tab:1: invalid schedule: spec "*/0 * * * *": minute, item "*/0": step 0 is out of range for 60 values; use 1-60`, ""},
		{"*/61 * * * * x\n", `tab:1: invalid schedule: spec "*/61 * * * *": minute, item "*/61": step 61 is out of range for 60 values; use 1-60`, "reads 0"},
		{"1-5/10 * * * * x\n", `tab:1: invalid schedule: spec "1-5/10 * * * *": minute, item "1-5/10": step 10 is out of range for 5 values; use 1-5`, "reads 1"},
		{"*/ * * * * x\n", `tab:1: invalid schedule: spec "*/ * * * *": minute, item "*/": the step after / is no number; use 1-60`, ""},
		{
			"*/5/5 * * * * x\n", `tab:1: invalid schedule: spec "*/5/5 * * * *": minute, item "*/5/5": the step after / is no number; use 1-60`,
			"reads */5",
		},
		{"0 0 * * 1-5/mon x\n", `tab:1: invalid schedule: spec "0 0 * * 1-5/mon": day of week, item "1-5/mon": the step after / is no number; use 1-5`, ""},
	}},
	{"names", []form{
		{"0 0 * jan sun x\n", "0 0 * jan sun | x", ""},
		{"0 0 * DEC Sat x\n", "0 0 * DEC Sat | x", ""},
		{"0 0 * jan,mar mon-fri x\n", "0 0 * jan,mar mon-fri | x", "the same, against its page: no lists and ranges of names"},
		{"0 0 * 1-mar 1,wed x\n", "0 0 * 1-mar 1,wed | x", "the same, against its page"},
		{"0 0 * * fri-sun x\n", "0 0 * * fri-sun | x", "takes it for 5-0 and never runs it"},
		{"0 0 * * fri-mon x\n", `tab:1: invalid schedule: spec "0 0 * * fri-mon": day of week, item "fri-mon": the range runs backwards; write two items: fri-6,0-mon`, "takes it and never runs it"},
		{"0 0 * * mon/2 x\n", "0 0 * * mon/2 | x", "refuses a step after a single name"},
		{"0 0 * january * x\n", `tab:1: invalid schedule: spec "0 0 * january *": month, item "january": "january" is not a value; use 1-12 or jan-dec`, ""},
		{"0 0 * * sunday x\n", `tab:1: invalid schedule: spec "0 0 * * sunday": day of week, item "sunday": "sunday" is not a value; use 0-7 or sun-sat`, ""},
		{"0 0 * mon * x\n", `tab:1: invalid schedule: spec "0 0 * mon *": month, item "mon": "mon" is not a value; use 1-12 or jan-dec`, ""},
		{"mon * * * * x\n", `tab:1: invalid schedule: spec "mon * * * *": minute, item "mon": "mon" is not a value; use 0-59`, ""},
	}},
	{"macros", []form{
		{"@yearly x\n@annually x\n@monthly x\n", "@yearly | x\n@annually | x\n@monthly | x", ""},
		{"@weekly x\n@daily x\n@midnight x\n@hourly x\n", "@weekly | x\n@daily | x\n@midnight | x\n@hourly | x", ""},
		{"@DAILY x\n", "@DAILY | x", "refuses capitals"},
		{"@every 90s x\n", "@every 90s | x", "refuses it: it is of Go's robfig/cron"},
		{"@reboot x\n@REBOOT y\n", "@reboot | x\n@reboot | y", "runs it when cron starts"},
		{"@never x\n", `tab:1: invalid schedule: spec "@never": unknown macro "@never"; use @hourly,`, ""},
		{"@daily\n", `tab:1: no command follows "@daily"; write one after the spec`, "takes it, and runs the shell without a command"},
		{"@daily = x\n@hourly y\n", `@hourly | y | env ["@daily=x"]`, ""},
	}},
	{"commands", []form{
		{"0 0 * * * cd /tmp && ./x 'a b' > \"$F\" 2>&1; y\n", `0 0 * * * | cd /tmp && ./x 'a b' > "$F" 2>&1; y`, ""},
		{"0 0 * * *\tA=1 x\n", "0 0 * * * | A=1 x", ""},
		{"0 0 * * * date +\\%F\n", "0 0 * * * | date +%F", ""},
		{"0 0 * * * x%a%b\n", `0 0 * * * | x | in "a\nb\n"`, ""},
		{"0 0 * * * x%a%b%\n", `0 0 * * * | x | in "a\nb\n"`, ""},
		{"0 0 * * * x%\n", "0 0 * * * | x", ""},
		{"0 0 * * * x%%\n", `0 0 * * * | x | in "\n"`, ""},
		{"0 0 * * * x%a\\%b%c\n", `0 0 * * * | x | in "a%b\nc\n"`, ""},
		{"0 0 * * * x 'a%b'\n", `0 0 * * * | x 'a | in "b'\n"`, ""},
		{"0 0 * * * printf 'a\\tb\\\\n'\n", `0 0 * * * | printf 'a\tb\n'`, ""},
		{"0 0 * * * x\\\\%a\\\\%b\n", `0 0 * * * | x\ | in "a\\%b\n"`, ""},
		{"0 0 * * * x \\\n", `0 0 * * * | x \`, ""},
		{"0 0 * * *\n", `tab:1: no command follows "0 0 * * *"; write one after the spec`, "takes it, and runs the shell without a command"},
		{"0 0 * * * %a\n", `tab:1: no command follows "0 0 * * *"; write one after the spec`, "takes it, and runs the shell without a command"},
	}},
	{"the user's column", []form{
		{"17 * * * * root x\n", "17 * * * * | root x", ""},
	}},
	{"other crons", []form{
		{"0~30 * * * * x\n", `tab:1: invalid schedule: spec "0~30 * * * *": minute, item "0~30": not a value; ? L W # H ~ R of other crons are not supported; for a random time use a fixed one (0-59), and a jitter`, "reads 0; it is OpenBSD's and cronie's, a random minute"},
		{"0 0 * * 5#2 x\n", `tab:1: invalid schedule: spec "0 0 * * 5#2": day of week, item "5#2": not a value; ? L W # H ~ R of other crons are not supported; use 0-7 or sun-sat`, "reads 5"},
		{"0 0 L * * x\n", `tab:1: invalid schedule: spec "0 0 L * *": day of month, item "L": not a value; ? L W # H ~ R of other crons are not supported; use 1-31`, ""},
		{"0 0 ? * 1 x\n", `tab:1: invalid schedule: spec "0 0 ? * 1": day of month, item "?": ? is not supported; use *`, ""},
		{
			"-5 * * * * x\n", `tab:1: invalid schedule: spec "-5 * * * *": minute, item "-5": a number is missing; use 0-59 (no signs)`,
			"the same; cronie's root runs it as 5, without a log",
		},
		{
			"TZ=UTC 0 0 * * * x\n", `tab:1: the zone "UTC 0 0 * * * x" holds blanks; write CRON_TZ=ZONE on a line of its own, above the entry`,
			"takes it for a setting",
		},
	}},
	{"an example", []form{{`# The office, by bash; what goes wrong, to Olga.
SHELL=/bin/bash
MAILTO=olga
#
# Each night, a little after twelve.
10 0 * * *      $HOME/bin/backup >> $HOME/log/backup 2>&1
# The first of the month, after lunch.
45 13 1 * *     $HOME/bin/invoices
# On weekdays at seven in the evening.
0 19 * * 1-5    mail -s "Seven o'clock" olga%Olga,%%the light is still on.%
41 1-23/2 * * * echo "41 minutes after one, three, five ..."
20 6 * * sat    echo "Saturdays at twenty past six"
`, `10 0 * * * | $HOME/bin/backup >> $HOME/log/backup 2>&1 | env ["SHELL=/bin/bash" "MAILTO=olga"]
45 13 1 * * | $HOME/bin/invoices | env ["SHELL=/bin/bash" "MAILTO=olga"]
0 19 * * 1-5 | mail -s "Seven o'clock" olga | in "Olga,\n\nthe light is still on.\n" | env ["SHELL=/bin/bash" "MAILTO=olga"]
41 1-23/2 * * * | echo "41 minutes after one, three, five ..." | env ["SHELL=/bin/bash" "MAILTO=olga"]
20 6 * * sat | echo "Saturdays at twenty past six" | env ["SHELL=/bin/bash" "MAILTO=olga"]`, ""}}},
}

func TestManual(t *testing.T) {
	t.Parallel()
	for _, topic := range manual {
		t.Run(topic.topic, func(t *testing.T) {
			t.Parallel()
			for _, f := range topic.forms {
				entries, err := crontab.Parse("tab", []byte(f.text))
				if err != nil {
					if !strings.HasPrefix(f.want, "tab:") || !strings.HasPrefix(err.Error(), f.want) || strings.Contains(err.Error(), "\n") {
						t.Errorf("%q: got %q, want %q (cron: %q)", f.text, err, f.want, f.cron)
					}
					continue
				}
				if got := show(entries); got != f.want {
					t.Errorf("%q: got %q, want %q (cron: %q)", f.text, got, f.want, f.cron)
				}
				checkFormat(t, entries)
			}
		})
	}
}

// TestManualDays checks which days of August 2026 a form means, at most the
// first five. The 1st is a Saturday.
func TestManualDays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, days string }{
		{"0 0 1,15 * fri", "1 7 14 15 21"},    // both restricted: either
		{"0 0 1-31 * fri", "1 2 3 4 5"},       // all days, and yet restricted
		{"0 0 1,* * fri", "1 2 3 4 5"},        // does not begin with *: either
		{"0 0 *,1 * fri", "7 14 21 28"},       // begins with *: both
		{"0 0 */2 * fri", "7 21"},             // both
		{"0 0 1-31/2 * fri", "1 3 5 7 9"},     // either
		{"0 0 8-14 * */2", "8 9 11 13"},       // both: Sun, Tue, Thu, Sat
		{"0 0 * * 0", "2 9 16 23 30"},         // Sunday
		{"0 0 * * 7", "2 9 16 23 30"},         // Sunday
		{"0 0 * * SUN", "2 9 16 23 30"},       // Sunday
		{"0 0 * * 5-7", "1 2 7 8 9"},          // Fri, Sat, Sun
		{"0 0 * * fri-sun", "1 2 7 8 9"},      // cron never runs this
		{"0 0 * * 0-7", "1 2 3 4 5"},          // all
		{"0 0 * * 1-7/2", "2 3 5 7 9"},        // Mon, Wed, Fri, Sun
		{"0 0 13-20/4,31 * *", "13 17 31"},    // a list of both kinds
		{"0 0 */10 * *", "1 11 21 31"},        // counts from 1
		{"@weekly", "2 9 16 23 30"},           // Sunday
		{"@monthly", "1"},                     // the first
		{"0 0 31 aug,sep *", "31"},            // September has 30 days
		{"0 0 2-30/7 8 1-5/4", "2 3 7 9 10"},  // either: Mon, Fri
		{"0 0 * Aug-AUG 3", "5 12 19 26"},     // Wednesday
		{"0 0 8 sep sat", ""},                 // September only
		{"0 0 29-31,1-2 * *", "1 2 29 30 31"}, // instead of 29-2
	} {
		e := parse(t, c.spec+" x")[0]
		s, err := cronspec.New(e.Spec, "", "")
		if err != nil {
			t.Fatal(err)
		}
		var days []string
		at, ok := s.Next(time.Date(2026, time.July, 31, 23, 59, 59, 0, time.UTC))
		for ; ok && len(days) < 5 && at.Year() == 2026 && at.Month() == time.August; at, ok = s.Next(at) {
			days = append(days, fmt.Sprint(at.Day()))
		}
		if got := strings.Join(days, " "); got != c.days {
			t.Errorf("%s: got days %s, want %s", c.spec, got, c.days)
		}
	}
}

// TestSystem: system crontabs are known by their paths, and Parse does not take their
// users for commands.
func TestSystem(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"/etc/crontab", "/etc/cron.d/php", "/etc/./cron.d/php", "/etc//crontab"} {
		_, err := crontab.Parse(file, []byte("17 * * * * root x\n"))
		want := file + ":1: this is a system crontab, with a column for the user; read it as one, or use a copy without that column"
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		got, err := crontab.ParseSystem(file, []byte("17 * * * * root x\n"))
		if err != nil || !crontab.IsSystem(file) || len(got) != 1 || got[0].User != "root" || got[0].Command != "x" {
			t.Errorf("as a system crontab: got %+v, %v", got, err)
		}
	}
	for _, file := range []string{"crontab", "/etc/dbcron/crontab", "/srv/etc/crontab", "etc/crontab", "/etc/cron.d/a/b"} {
		if _, err := crontab.Parse(file, []byte("17 * * * * x\n")); err != nil || crontab.IsSystem(file) {
			t.Error(file, err)
		}
	}
}

// TestSystemEntries reads what Debian has in such files.
func TestSystemEntries(t *testing.T) {
	t.Parallel()
	got, err := crontab.ParseSystem("tab", []byte(strings.Join([]string{
		"SHELL=/bin/sh",
		"17 *\t* * *\troot\t cd / && run-parts --report /etc/cron.hourly",
		"@daily www-data  mail shop%Hello\\%",
		"# name: sweep",
		"@every 90s _apt-2 true",
		"@daily games true",
		"@daily nobody true",
	}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for i, want := range []crontab.Entry{
		{Line: 2, Spec: "17 * * * *", User: "root", Command: "cd / && run-parts --report /etc/cron.hourly"},
		{Line: 3, Spec: "@daily", User: "www-data", Command: "mail shop", Stdin: "Hello%\n"},
		{Line: 5, Name: "sweep", Spec: "@every 90s", User: "_apt-2", Command: "true"},
		{Line: 6, Spec: "@daily", User: "games", Command: "true"},
		{Line: 7, Spec: "@daily", User: "nobody", Command: "true"},
	} {
		want.Env, want.Key = []string{"SHELL=/bin/sh"}, got[i].Key
		keys[got[i].Key] = true
		if !reflect.DeepEqual(got[i], want) {
			t.Errorf("got  %+v\nwant %+v", got[i], want)
		}
	}
	if len(keys) != 5 || strings.Contains(got[4].Key, "#") {
		t.Errorf("the user tells entries apart: got keys %v", keys)
	}
	if _, err := crontab.Format(got[3:4]); err == nil ||
		!strings.Contains(err.Error(), `it runs as the user "games", which only a system crontab can say`) {
		t.Errorf("written without its user: %v", err)
	}
	for _, c := range []struct{ line, want string }{
		{"17 * * * *", `no user follows "17 * * * *"; write the user that the command runs as, and then the command`},
		{"@daily", `no user follows "@daily"; write the user that the command runs as, and then the command`},
		{"@daily root", `no command follows "@daily root"; write one after the user`},
		{"@daily root %x", `no command follows "@daily root"; write one after the user`},
		{"@daily root:wheel x", `"root:wheel" is no user's name; write the user that the command runs as after the spec`},
		{"@daily /bin/x y", `"/bin/x" is no user's name; write the user that the command runs as after the spec`},
	} {
		if _, err := crontab.ParseSystem("tab", []byte(c.line+"\n")); err == nil || err.Error() != "tab:1: "+c.want {
			t.Errorf("%s: got %v", c.line, err)
		}
	}
}

// TestTraps has what robfig/cron stops the program for, or takes and gets wrong.
func TestTraps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want string }{
		// It panics.
		{"TZ=0 0 * * * x", `the zone "0 0 * * * x" holds blanks; write CRON_TZ=ZONE on a line of its own, above the entry`},
		{"CRON_TZ=X", `invalid schedule: time zone "X" is unknown; use a name such as Europe/Berlin, or UTC`},
		{"CRON_TZ=Asia/Tokyo\t0 0 * * * x", `the zone "Asia/Tokyo\t0 0 * * * x" holds blanks; write CRON_TZ=ZONE on a line of its own`},
		{"CRON_TZ=Asia/Tokyo 0 0 * * * x", `the zone "Asia/Tokyo 0 0 * * * x" holds blanks; write CRON_TZ=ZONE on a line of its own`},
		{"TZ=", ""}, // a line of its own: a variable without a value

		// It never fires, and searches for seconds each time.
		{", * * * * x", `invalid schedule: spec ", * * * *": minute, item "": it is empty; take out the extra comma`},
		{"0 0 31 2 * x", `invalid schedule: spec "0 0 31 2 *": it never fires: no day matches 31 2 *`},

		// It reads something else.
		{"*-5 * * * * x", `invalid schedule: spec "*-5 * * * *": minute, item "*-5": * stands alone or before a step; write * or */5`},
		{"+5 * * * * x", `invalid schedule: spec "+5 * * * *": minute, item "+5": "+5" is not a value; use 0-59`},
		{"1,, * * * * x", `invalid schedule: spec "1,, * * * *": minute, item "": it is empty; take out the extra comma`},
		{"*/61 * * * * x", `invalid schedule: spec "*/61 * * * *": minute, item "*/61": step 61 is out of range for 60 values; use 1-60`},
		{"@every -5m x", `invalid schedule: spec "@every -5m": @every: "-5m" is not a duration; write for example 90s, 15m or 1h30m`},
		{"@every 0s x", `invalid schedule: spec "@every 0s": @every: "0s" is out of range; use 1s to 8784h (366 days)`},
		{"@every 1500ms x", `invalid schedule: spec "@every 1500ms": @every: "1500ms" has a fraction of a second; use whole seconds`},
		{"@every 9000h x", `invalid schedule: spec "@every 9000h": @every: "9000h" is out of range; use 1s to 8784h (366 days)`},
		{"0 0 ? * ? x", `invalid schedule: spec "0 0 ? * ?": day of month, item "?": ? is not supported; use *`},

		// It takes any length.
		{strings.Repeat("1,", 200_000) + "1 * * * * x", "the line has 400011 bytes; use at most 65536, or call a script"},
		{strings.Repeat("1,", 20_000) + "1 * * * * x", "invalid schedule: the spec has 40009 bytes; use at most 256"},

		// It refuses what cron takes.
		{"0 0 * * 7 x", ""},
		{"0 0 * * 5-7 x", ""},
		{"0 0 29 2 * x", ""},
		{"0 0 29 2 */7 x", ""}, // 29 February and Sunday, up to 40 years away

		// Other parsers' letters, and fields for seconds and years.
		{"0 0 L * * x", `invalid schedule: spec "0 0 L * *": day of month, item "L": not a value; ? L W # H ~ R of other crons are not supported`},
		{"0 0 15W * * x", `invalid schedule: spec "0 0 15W * *": day of month, item "15W": not a value; ? L W # H ~ R of other crons are not supported`},
		{"0 0 * * 5#2 x", `invalid schedule: spec "0 0 * * 5#2": day of week, item "5#2": not a value; ? L W # H ~ R of other crons are not supported`},
		{"*/10 * * * * * /srv/z", `"*" after "*/10 * * * *" looks like a sixth field, of a format whose first field is the second, as in Quartz and Spring; cron has five`},
		{"0 12 * * 1 MON-FRI /srv/x", `"MON-FRI" after "0 12 * * 1" looks like a sixth field`},
		{"0 4 1 1 * 2027 /srv/x", `"2027" after "0 4 1 1 *" looks like a sixth field, of a format with a field for the year, as in Quartz; cron has five`},
		{"0 4 1 1 * 2027-2030 /srv/x", `"2027-2030" after "0 4 1 1 *" looks like a sixth field, of a format with a field for the year`},
		{"0 15 10 1 1 ? x", `"?" after "0 15 10 1 1" looks like a sixth field`},
		{"0 5 * * 1 L /x", `"L" after "0 5 * * 1" looks like a sixth field`},
		{"0 5 * * 1 5L /x", `"5L" after`},
		{"0 5 1 * 1 6#3 /x", `"6#3" after`},
		{"0 5 1 1 1 LW /x", `"LW" after`},
		{"0 5 1 1 1 15W /x", `"15W" after`},
		{"0 5 1 1 1 0/15 /x", `"0/15" after`},
		{"0 5 1 1 1 */2 /x", `"*/2" after`},
		{"0 5 1 1 1 1-5 /x", `"1-5" after`},
		{"0 5 1 1 1 mon,WED /x", `"mon,WED" after`},
		{"0 5 1 1 1 7 /x", `"7" after`},
		{"0 5 1 1 1 w", ""},
		{"0 5 1 1 1 7z x", ""},
		{"0 5 1 1 1 mon x", ""},
		{"0 5 1 1 1 [ -e x ]", ""},
		{"0 5 1 1 1 ./1-5", ""},
		{"0 5 1 1 1 /1", ""},
		{"0 5 1 1 1 sun-nfs", ""},
		{"0 5 1 1 1 A=1 x", ""},
		{"0 5 1 1 1 - x", ""},
		{"0 5 1 1 1 a2,b", ""},
		{"H H * * * x", `invalid schedule: spec "H H * * *": minute, item "H": not a value; ? L W # H ~ R of other crons are not supported`},
	} {
		_, err := crontab.Parse("tab", []byte("\n"+c.line+"\n@hourly x\n"))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%.60q: got %v, want it accepted", c.line, err)
		case c.want == "":
		case err == nil:
			t.Errorf("%.60q is accepted, want %q", c.line, c.want)
		case !strings.HasPrefix(err.Error(), "tab:2: "+c.want) || strings.Contains(err.Error(), "\n"):
			t.Errorf("%.60q: got %q, want one line, tab:2: %s", c.line, err, c.want)
		}
	}
}
