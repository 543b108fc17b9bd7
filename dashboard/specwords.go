package dashboard

import (
	"fmt"
	"strconv"
	"strings"
)

var macroWords = map[string]string{
	"@manual": "when a person or another schedule starts it", "@reboot": "once after each start of a host", "@hourly": "every hour",
	"@daily": "every day at 00:00", "@midnight": "every day at 00:00", "@weekly": "on Sundays at 00:00",
	"@monthly": "on day 1 of each month at 00:00", "@yearly": "on 1 January at 00:00", "@annually": "on 1 January at 00:00",
}

var dayWords = []string{"Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays"}

// specWords describes a spec in words. It returns "" for unusual forms: there the next slots
// show the meaning.
func specWords(spec string) string {
	f := strings.Fields(strings.ToLower(spec))
	switch {
	case len(f) == 1:
		return macroWords[f[0]]
	case len(f) > 1 && f[0] == "@every":
		return "every " + strings.Join(f[1:], " ")
	case len(f) != 5 || f[3] != "*":
		return ""
	}
	days := dayPart(f[2], f[4])
	if n, ok := step(f[0], 60); ok && f[1] == "*" && days == "every day" {
		return every(n, "minute")
	}
	minute, ok := number(f[0], 59)
	if !ok || days == "" {
		return ""
	}
	if hour, ok := number(f[1], 23); ok {
		return fmt.Sprintf("%s at %02d:%02d", days, hour, minute)
	}
	if n, ok := step(f[1], 24); ok && days == "every day" {
		return fmt.Sprintf("%s, at minute %d", every(n, "hour"), minute)
	}
	return ""
}

// dayPart describes the days, given the fields for days of the month and of the week.
func dayPart(month, week string) string {
	day, ofMonth := number(month, 31)
	on, ofWeek := number(week, 7)
	switch {
	case month == "*" && week == "*":
		return "every day"
	case week == "*" && ofMonth && day > 0:
		return fmt.Sprintf("on day %d of each month", day)
	case month == "*" && ofWeek:
		return "on " + dayWords[on]
	case month == "*" && (week == "1-5" || week == "mon-fri"):
		return "from Monday to Friday"
	}
	return ""
}

func number(field string, most int) (int, bool) {
	n, err := strconv.ParseUint(field, 10, 8)
	return int(n), err == nil && int(n) <= most
}

// step parses * and */n, where n must divide of.
func step(field string, of int) (int, bool) {
	if field == "*" {
		return 1, true
	}
	rest, ok := strings.CutPrefix(field, "*/")
	n, is := number(rest, of/2)
	return n, ok && is && n > 0 && of%n == 0
}

func every(n int, what string) string {
	if n == 1 {
		return "every " + what
	}
	return fmt.Sprintf("every %d %ss", n, what)
}
