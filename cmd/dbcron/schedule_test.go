package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

// TestSettings sees to it that each field of a schedule has its setting, or is
// one of those that have a flag of their own or none, and that all are shown.
func TestSettings(t *testing.T) {
	apart := []string{
		"ID", "Name", "Source", "Key", "Spec", "Kind", "Command", "Stdin", "Env", "Headers", "State", "Reason",
		"Due", "Failures", "Policy", "Job",
	}
	fields := reflect.VisibleFields(reflect.TypeFor[scheduler.Schedule]())
	job, _ := reflect.TypeFor[scheduler.Schedule]().FieldByName("Job")
	for _, f := range reflect.VisibleFields(job.Type) {
		f.Index, f.Name = append(slices.Clone(job.Index), f.Index...), "Job."+f.Name
		fields = append(fields, f)
	}
	for _, f := range fields {
		if slices.Contains(apart, f.Name) || !f.IsExported() {
			continue
		}
		var s scheduler.Schedule
		field := reflect.ValueOf(&s).Elem().FieldByIndex(f.Index)
		switch field.Interface().(type) {
		case string:
			field.SetString("word")
		case int:
			field.SetInt(7)
		case time.Duration:
			field.SetInt(int64(7 * time.Hour))
		case bool:
			field.SetBool(true)
		case time.Time:
			field.Set(reflect.ValueOf(time.Date(2026, 11, 20, 1, 2, 3, 4e6, time.UTC)))
		}
		if f.Name == "Job.Priority" {
			s.Job.Priority = queue.Low // there are four
		}
		var of []scheduler.Setting
		for _, set := range settings {
			if !set.Ordinary(&s) {
				of = append(of, set)
			}
		}
		if len(of) != 1 {
			t.Errorf("%s: it has %d settings", f.Name, len(of))
			continue
		}
		set, want := of[0], s
		text := set.Text(&s)
		if err := set.Set(&s, ""); err != nil || !reflect.DeepEqual(s, scheduler.Schedule{}) {
			t.Errorf("%s: %s is not taken back", f.Name, set.Name)
		}
		if err := set.Set(&s, text); err != nil || !reflect.DeepEqual(s, want) {
			t.Errorf("%s: %q is read as %+v, %v", f.Name, text, s, err)
		}
		if strings.HasPrefix(f.Name, "Job.") {
			want.Kind = "job" // others do not show them
		}
		row, err := json.Marshal(wireof.Schedule(&want))
		if err != nil || !strings.Contains(string(row), `"`+set.Name+`":`) {
			t.Errorf("%s is not in %s", set.Name, row)
		}
	}
}

func TestSettingWords(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"keep_runs", "all", "all"},
		{"keep_runs", "", ""},
		{"keep_for", "forever", "forever"},
		{"keep_for", "1w", "7d"},
		{"timeout", "none", "none"},
		{"timeout", "0s", "none"},
		{"timeout", "1h30m", "1h30m"},
		{"max_failures", "none", "none"},
		{"max_failures", "0", "none"},
		{"starts", "2026-11-20T10:00", "2026-11-20T09:00:00Z"},
		{"starts", "", ""},
		{"keep_runs", "0", "error"},
		{"keep_runs", "-1", "error"},
		{"keep_for", "0s", "error"},
		{"retry_delay", "0s", "error"},
		{"max_attempts", "many", "error"},
		{"ends", "2026-11-20", "error"},
		{"ends", "2026-10-25T02:30", "error"}, // the clocks show it twice
	} {
		s := scheduler.Schedule{Zone: "Europe/Berlin"}
		set := settings[slices.IndexFunc(settings, func(set scheduler.Setting) bool { return set.Name == c.name })]
		err := set.Set(&s, c.text)
		if got := set.Text(&s); err == nil && got != c.want || err != nil && c.want != "error" {
			t.Errorf("%s %q: got %q, %v; want %q", c.name, c.text, got, err, c.want)
		}
	}
}

// TestSystemCrontab: by its path, by the flag, or refused where each line could be one of either.
func TestSystemCrontab(t *testing.T) {
	yes, no := true, false
	const doubtful, user = "# x\n@daily root true\n@daily root\tfalse x\n", "@daily true x\n@daily deploy x\n"
	for _, c := range []struct {
		path, text string
		system     *bool
		want       string // the user of the first line, or the error
	}{
		{"/etc/crontab", doubtful, nil, "root"},
		{"/etc/../etc/cron.d/x", doubtful, nil, "root"},
		{"/etc/crontab", doubtful, &yes, "root"},
		{"/etc/crontab", doubtful, &no, "/etc/crontab:1: this is a system crontab, with a column for the user; leave --system=false out"},
		{"/srv/crontab", doubtful, &yes, "root"},
		{"/srv/crontab", doubtful, &no, ""},
		{"/srv/crontab", doubtful, nil, `/srv/crontab:2: "root" may be the user that the command runs as, as in a system crontab, or the command; --system reads it`},
		{"/srv/crontab", user, nil, ""},
		{"/srv/crontab", user, &yes, "true"},
		{"/srv/crontab", "@daily root\n", nil, ""}, // no command would follow the user
	} {
		f := scheduleFile{kind: "crontab", path: c.path, system: c.system}
		switch entries, err := f.parseCrontab([]byte(c.text)); {
		case err != nil:
			if c.want == "" || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		case entries[0].User != c.want:
			t.Errorf("%+v: user %q", c, entries[0].User)
		}
	}
	if entries, err := (&scheduleFile{path: "x"}).parseCrontab(nil); err != nil || len(entries) != 0 {
		t.Errorf("an empty file: %v, %v", entries, err)
	}
}

// A file that was changed in place, with its size and time as before, is noticed by its content.
func TestChangedInPlace(t *testing.T) {
	f := scheduleFile{kind: "crontab", path: filepath.Join(t.TempDir(), "crontab"), source: "s"}
	write := func(text string) {
		must(t, os.WriteFile(f.path, []byte(text), 0o600))
		must(t, os.Chtimes(f.path, time.Time{}, time.Unix(1_700_000_000, 0)))
	}
	write("@daily old\n")
	must(t, f.load(nil))
	if f.stable() || f.differs() {
		t.Error("it has changed by itself")
	}
	write("@daily new\n")
	if f.stable() || !f.differs() {
		t.Error("the change was not noticed")
	}
	must(t, f.load(nil))
	if f.differs() {
		t.Error("the change was noticed twice")
	}
	write("@daily longer\n")
	if f.differs() {
		t.Error("a change of the size was not left to stable")
	}
}

// A comment behind MAILTO, which cron has none for, is no recipient.
func TestMailToComment(t *testing.T) {
	for text, want := range map[string]string{
		"MAILTO=a@example.org # me": "mailto:a@example.org", "MAILTO=a@example.org\t#me": "mailto:a@example.org",
		"MAILTO=a@example.org": "mailto:a@example.org", "MAILTO=# nobody": scheduler.NotifyNobody,
	} {
		f := scheduleFile{kind: "crontab", path: "tab", source: "s"}
		given, err := f.readCrontab([]byte(text + "\n@daily x\n@daily y\n"))
		must(t, err)
		if warned := len(f.warnings); given[0].Notify != want || (warned == 1) != strings.Contains(text, "#") {
			t.Errorf("%s: got %q, and %q", text, given[0].Notify, f.warnings)
		}
	}
}

// TestPrinter lets a text grow as a run's output does: of a long one the middle
// is left out, more of it each time.
func TestPrinter(t *testing.T) {
	head, more := strings.Repeat("head\n", 100), ""
	for i := range 500 {
		more += fmt.Sprintln("line", i)
	}
	for _, c := range []struct {
		name, want string
		texts      []string
	}{
		{"grows", "abcdef", []string{"", "abc", "abc", "abcdef"}},
		{"is cut", head + more[:2000], []string{head + more[:1000], head + "[…]" + more[600:2000]}},
		{"is cut again", head + more[:3000], []string{head + more[:1000], head + "[…]" + more[600:2000], head + "[……]" + more[1500:3000]}},
		{"leaps", head + "[…]" + more[4000:], []string{head, head + "[…]" + more[4000:]}},
		{"leaps again", head + "[…]" + more[:100] + "2]" + more[4000:], []string{head + "[…]" + more[:100], head + "[…2]" + more[4000:]}},
	} {
		var out strings.Builder
		pr := &printer{out: &out}
		for _, text := range c.texts {
			if err := pr.print(text); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != c.want {
			t.Errorf("%s: got %q", c.name, out.String())
		}
	}
}
