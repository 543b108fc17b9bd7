package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/ops/crontab"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// anyYears are some in which the rules of all zones are seen.
var anyYears = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// unlikeCron are the differences from crons that a line of a crontab may meet, in the order of docs/crontab.md. Of the zone,
// zoneWarning tells where it matters.
var unlikeCron = []struct {
	cron, text string
	meets      func(s *schedule) bool
}{
	{"cron", "a time that was missed runs late, once for all that were missed (missed=skip: never)", func(s *schedule) bool {
		return s.Spec != crontab.Reboot && s.Missed != "skip"
	}},
	{"cron", "a time that comes while a run is under way is skipped (overlap=allow: it runs beside it)", func(s *schedule) bool {
		return s.Spec != crontab.Reboot && (s.Overlap == "" || s.Overlap == "forbid")
	}},
	{"cron", "mail tells of failures and recoveries, and not of whatever is printed", func(s *schedule) bool {
		return s.Notify != "" && s.Notify != scheduler.NotifyNobody
	}},
	{"cron", "one host of those that have the file runs it, and not each", func(s *schedule) bool {
		return s.Spec != crontab.Reboot
	}},
	// Both were seen by running them: docs/crontab.md.
	{"Debian's cron", "of the times that clocks skip all are one run, when they go on, and not one each", func(s *schedule) bool {
		spec, err := cronspec.New(s.Spec, s.Zone, s.DST)
		return err == nil && spec.Skipped(anyYears, anyYears.AddDate(8, 0, 0)) > 1
	}},
	{"bcron", "a day of month beside a day of week means either, and not both", func(s *schedule) bool {
		spec, err := cronspec.New(s.Spec, s.Zone, s.DST)
		return err == nil && spec.Spec().EitherDay()
	}},
}

// differences says which lines of a crontab meet which differences from cron.
func (f *scheduleFile) differences() (all []string) {
	for _, d := range unlikeCron {
		var met []int
		for i, line := range f.lines {
			if d.meets(&f.given[i]) {
				met = append(met, line)
			}
		}
		if len(met) > 0 {
			all = append(all, fmt.Sprintf("%s: unlike %s, %s: %s", f.path, d.cron, d.text, linesText(met)))
		}
	}
	return all
}

// linesText lists the numbers of lines, which ascend: lines 1, 3-5.
func linesText(lines []int) string {
	var parts []string
	for i := 0; i < len(lines); {
		last := i
		for last+1 < len(lines) && lines[last+1] == lines[last]+1 {
			last++
		}
		part := fmt.Sprint(lines[i])
		if last > i {
			part += fmt.Sprint("-", lines[last])
		}
		parts, i = append(parts, part), last+1
	}
	if len(lines) == 1 {
		return "line " + parts[0]
	}
	return "lines " + strings.Join(parts, ", ")
}
