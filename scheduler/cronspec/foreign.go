package cronspec

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Specs of other tools, which are refused with what to write instead. All ways in parse specs here: flags, files, the API and rows.

var (
	rate      = lazy(`^rate\(\s*([0-9]+)\s+(minute|hour|day)s?\s*\)`)
	wrapped   = lazy(`^cron\(([^)]*)\)`)
	spelled   = lazy(`^(?:every\s+)?([0-9]+)\s*(s|sec|second|m|min|minute|h|hour|d|day)s?$`)
	yearField = lazy(`^(?:19|20)[0-9]{2}\b`)
	calendar  = lazy(`^(?:(?:mon|tue|wed|thu|fri|sat|sun)\S*\s+)?\S+-\S+-\S+\s+[0-9*/]+:[0-9*/]+`)
)

// lazy is pattern.Lazy: this package imports none of ours.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) }) //nolint:forbidigo // it is pattern.Lazy
}

// advice returns what to write instead of a spec that does not have five fields, as the end of an error; "" if it is of no tool that is
// known.
func advice(words []string) string {
	text := strings.ToLower(strings.Join(words, " "))
	switch {
	case strings.Contains(text, "$"):
		return "; a variable is not expanded in a spec: write its value"
	case rate().MatchString(text):
		m := rate().FindStringSubmatch(text)
		return "; rate(…) is of Amazon EventBridge" + orWrite(every(m[1], m[2]))
	case wrapped().MatchString(text):
		return "; cron(…) is of Amazon EventBridge" + orWrite(five(strings.Fields(wrapped().FindStringSubmatch(text)[1])))
	case spelled().MatchString(text):
		m := spelled().FindStringSubmatch(text)
		return orWrite(every(m[1], m[2]))
	case calendar().MatchString(text):
		return "; this is OnCalendar of systemd, whose 02:30 is 30 2 * * * here"
	case len(words) == 1 && macros["@"+text] != "":
		return "; write @" + text
	case len(words) == 6 || len(words) == 7:
		return orWrite(six(words))
	}
	return ""
}

func orWrite(spec string) string {
	if spec == "" {
		return ""
	}
	return "; write " + spec
}

// Instead returns the spec that a text of six or seven fields means, as far as that is known: "" if it is not.
func Instead(text string) string {
	if words := strings.Fields(text); len(words) == 6 || len(words) == 7 {
		return six(words)
	}
	return ""
}

// every returns @every with an interval, if that is one.
func every(n, unit string) string {
	number, err := strconv.Atoi(n)
	if err != nil || number > 1_000_000 {
		return ""
	}
	d, letter := time.Duration(number), unit[:1]
	if letter == "d" {
		d, letter = 24*d, "h"
	}
	return checked("@every " + strconv.Itoa(int(d)) + letter)
}

// six returns what a spec means whose first field is the second, or whose last one is a year.
func six(words []string) string {
	switch n := len(words); {
	case n == 6 && yearField().MatchString(words[5]):
		return five(words)
	case n == 7 && words[6] != "*" && words[6] != "?":
		return "" // one year
	}
	seconds, rest := words[0], words[1:6]
	if _, err := number(seconds); err == nil {
		return five(rest)
	}
	if strings.ReplaceAll(strings.Join(rest, " "), "?", "*") != "* * * * *" {
		return "" // several times in some minutes
	}
	if seconds == "*" {
		return every("1", "s")
	}
	step, _ := strings.CutPrefix(seconds, "*/")
	return every(step, "s")
}

// five returns the five fields of a spec that may have a field for the year, with a * for each ?.
func five(words []string) string {
	if len(words) == 6 && (words[5] == "*" || words[5] == "?") {
		words = words[:5]
	}
	if len(words) == 6 && yearField().MatchString(words[5]) {
		words = words[:5]
	}
	if len(words) != len(fields) {
		return ""
	}
	spec := checked(strings.ReplaceAll(strings.Join(words, " "), "?", "*"))
	if spec != "" && strings.ContainsAny(words[4], "0123456789") {
		spec += ", where day 1 is Monday, and not Sunday as in Quartz and EventBridge"
	}
	return spec
}

// checked returns a spec unless it is refused itself.
func checked(spec string) string {
	if _, err := parse(spec); err != nil {
		return ""
	}
	return spec
}
