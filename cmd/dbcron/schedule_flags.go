package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/manifest"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// Flags of add and edit that are not settings: when, and what to run.
type scheduleFlags struct {
	spec          string
	http, sql, fn string
	job           string
	stdin, body   string
	payload       string
	env, headers  []string
	words         []string // the command after --

	edit    bool // the schedule exists: see merge
	changed func(flag string) bool
	text    func(flag string) string
	wrong   []scheduler.Problem
}

func (f *scheduleFlags) register(c *cobra.Command) {
	flags := c.Flags()
	f.changed = flags.Changed
	f.text = func(flag string) string { return flags.Lookup(flag).Value.String() }
	flags.SortFlags = false // in order: what, when, and then the policies
	flags.StringVar(&f.spec, "spec", "", "`spec`: five cron fields, or @daily, @every 90s, @manual, …")
	flags.StringVar(&f.http, "http", "", "run a `request` such as \"POST https://example.org/report\"")
	flags.StringArrayVar(&f.headers, "header", nil, "of the request, such as `'Name: value'`; may be repeated")
	flags.StringVar(&f.body, "body", "", "`text` of the request")
	flags.StringVar(&f.sql, "sql", "", "run a `statement` in the database of the schedules")
	flags.StringVar(&f.fn, "func", "", "run the Go function that a program handles under this `name`")
	flags.StringVar(&f.job, "job", "", "enqueue a job of this `kind`")
	flags.StringVar(&f.payload, "payload", "", "of the job, as `JSON` (default: schedule, due and run_id of the slot)")
	flags.StringVar(&f.stdin, "stdin", "", "`text` for the command's standard input, or the function's input")
	flags.StringArrayVar(&f.env, "env", nil, "`NAME=VALUE` for the command's environment; may be repeated")
	registerSettings(c, slices.DeleteFunc(slices.Clone(settings), func(s scheduler.Setting) bool {
		return f.edit && s.Name == "first_run" // it is not new
	}))
}

// any reports whether anything is given besides the name.
func (f *scheduleFlags) any() bool {
	given := len(f.words) > 0
	for _, flag := range []string{"spec", "http", "header", "body", "sql", "func", "job", "payload", "stdin", "env"} {
		given = given || f.changed(flag)
	}
	for i := range settings {
		given = given || f.changed(settings[i].Flag())
	}
	return given
}

func (f *scheduleFlags) fail(field, format string, args ...any) {
	f.wrong = append(f.wrong, scheduler.Problem{Field: field, Text: fmt.Sprintf(format, args...)})
}

// split splits the arguments into the name and the command after --.
func (f *scheduleFlags) split(c *cobra.Command, args []string) (name string, err error) {
	dash := c.ArgsLenAtDash()
	if dash < 0 {
		dash = len(args)
	}
	if dash != 1 {
		return "", usagef("one name goes before --, and the command after it: %s", c.Use)
	}
	f.words = args[1:]
	return args[0], nil
}

// apply changes a schedule according to the flags, and returns everything wrong with the result as one error.
func (f *scheduleFlags) apply(s *scheduler.Schedule) error {
	f.wrong = nil
	f.work(s)
	if f.changed("spec") {
		s.Spec = f.spec
	}
	s.Env = f.merge("env", s.Env, f.env, "=", "NAME=VALUE")
	s.Headers = f.merge("headers", s.Headers, f.headers, ":", "'Name: value'")
	f.input(s)
	for i := range settings {
		set := &settings[i]
		if !f.changed(set.Flag()) {
			continue
		}
		if err := set.Set(s, f.text(set.Flag())); err != nil {
			f.fail(set.Name, "%v", err)
		}
	}
	return f.refuse(s)
}

// change returns what the flags have changed of a schedule, as the API takes it.
func (f *scheduleFlags) change(s *scheduler.Schedule) (change wire.ScheduleChange, err error) {
	given := map[string]string{}
	for i := range settings {
		if flag := settings[i].Flag(); f.changed(flag) {
			given[settings[i].Name] = f.text(flag)
		}
	}
	if change, err = changeOf[wire.ScheduleChange](wireof.Schedule(s), given); err != nil {
		return change, err
	}
	if f.changed("spec") {
		change.Spec = &s.Spec
	}
	if len(f.words) > 0 || f.changed("http") || f.changed("sql") || f.changed("func") || f.changed("job") {
		change.Kind, change.Command = &s.Kind, &s.Command
	}
	if f.changed(inputFlag(s.Kind)) {
		change.Stdin = &s.Stdin
	}
	change.Env, change.Headers = pairChanges(f.env, "=", s.Env), pairChanges(f.headers, ":", s.Headers)
	return change, nil
}

// pairChanges returns what becomes of the pairs that flags name; nil: they are taken away.
func pairChanges(given []string, between string, is map[string]string) map[string]*string {
	if len(given) == 0 {
		return nil
	}
	changes := map[string]*string{}
	for _, pair := range given {
		name, _, _ := strings.Cut(pair, between)
		if between == ":" {
			name = strings.TrimSpace(name)
		}
		changes[name] = nil
		if text, has := is[name]; has {
			changes[name] = &text
		}
	}
	return changes
}

// work sets what is run.
func (f *scheduleFlags) work(s *scheduler.Schedule) {
	given := 0
	for _, w := range []struct {
		flag, kind, command string
		is                  bool
	}{
		{"", "shell", strings.Join(f.words, ""), len(f.words) == 1},
		{"", "argv", scheduler.Argv(f.words...), len(f.words) > 1},
		{"http", "http", f.http, f.changed("http")},
		{"sql", "sql", f.sql, f.changed("sql")},
		{"func", "func", f.fn, f.changed("func")},
		{"job", "job", f.job, f.changed("job")},
	} {
		if w.is {
			given++
			s.Kind, s.Command = w.kind, w.command
		}
	}
	if s.Kind == "http" && strings.Contains(s.Command, "://") && !strings.Contains(s.Command, " ") {
		s.Command = "GET " + s.Command
	}
	switch {
	case given > 1:
		f.fail("work", "only one of a command after --, --http, --sql, --func and --job can be run; keep one of them")
	case given == 0 && !f.edit:
		f.fail("work", "there is nothing to run; give a command after --, or --http, --sql, --func or --job")
	}
}

// merge sets pairs in a map, and deletes those without a value.
func (f *scheduleFlags) merge(field string, old map[string]string, given []string, between, shape string) map[string]string {
	merged := maps.Clone(old)
	if merged == nil {
		merged = map[string]string{}
	}
	for _, pair := range given {
		name, value, ok := strings.Cut(pair, between)
		if between == ":" {
			name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		}
		switch {
		case ok:
			merged[name] = value
		case f.edit:
			delete(merged, name)
		default:
			f.fail(field, "%q is not %s", pair, shape)
		}
	}
	return merged
}

// input sets what the work reads: one column, with three flags.
func (f *scheduleFlags) input(s *scheduler.Schedule) {
	for _, in := range []struct{ flag, text, what string }{
		{"stdin", f.stdin, "commands and functions"}, {"body", f.body, "requests"}, {"payload", f.payload, "jobs"},
	} {
		if right := inputFlag(s.Kind); f.changed(in.flag) && in.flag != right {
			f.fail("input", "--%s: is for %s; here it is --%s", in.flag, in.what, right)
		} else if f.changed(in.flag) {
			s.Stdin = in.text
		}
	}
}

// inputFlag returns the flag that sets the column stdin.
func inputFlag(kind string) string {
	switch kind {
	case "http":
		return "body"
	case "job":
		return "payload"
	}
	return "stdin"
}

// refuse joins all errors into one, in terms of flags.
func (f *scheduleFlags) refuse(s *scheduler.Schedule) error {
	told := map[string]bool{}
	for _, p := range f.wrong {
		told[p.Field] = true
	}
	told["command"] = told["work"]
	for _, p := range s.Problems() {
		switch {
		case told[p.Field]:
		case p.Field == "spec":
			f.wrong = append(f.wrong, manifest.TimeProblems(s, p)...)
		default:
			f.wrong = append(f.wrong, p)
		}
	}
	lines := make([]string, len(f.wrong))
	for i, p := range f.wrong {
		lines[i] = strings.TrimPrefix(flagOf(p.Field, s.Kind)+": ", ": ") + oneLine(p.Text, 1000)
	}
	switch len(lines) {
	case 0:
		return nil
	case 1:
		return usagef("%s", lines[0])
	}
	return usagef("%d errors to correct, and nothing was changed:\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// flagOf returns the flag that sets a column; "" if the text names what it is about.
func flagOf(field, kind string) string {
	switch field {
	case "work", "input", "spec", "name", "source":
		return ""
	case "command":
		if kind == "http" || kind == "sql" || kind == "func" || kind == "job" {
			return "--" + kind
		}
		return "the command"
	case "headers":
		return "--header"
	case "stdin":
		return "--" + inputFlag(kind)
	case "job": // several flags
		return "--job-…"
	}
	return "--" + strings.ReplaceAll(field, "_", "-")
}
