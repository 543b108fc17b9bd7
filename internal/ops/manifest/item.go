package manifest

import (
	"slices"
	"strings"

	"github.com/dbcron/dbcron/scheduler"
)

// An item is a schedule while it is being read.
type item struct {
	*reader
	schedule
	line int

	given map[string]entry
	bad   map[string]bool  // keys and fields that were reported already
	at    map[string]entry // entries from which the fields command, headers and stdin come
}

func (r *reader) newItem(line int, given []entry) *item {
	it := &item{
		reader: r, line: line,
		given: map[string]entry{}, bad: map[string]bool{}, at: map[string]entry{},
	}
	for _, e := range given {
		it.given[e.key] = e
	}
	return it
}

// readDefaults reads the defaults for all schedules. To check them, it applies them to a
// schedule without other problems.
func (r *reader) readDefaults(v value) {
	given, ok := r.mapping("defaults", v)
	if !ok {
		return
	}
	given = slices.DeleteFunc(given, func(e entry) bool {
		if slices.Contains(defaultKeys, e.key) {
			return false
		}
		if slices.Contains(scheduleKeys, e.key) {
			r.fail(e.line, "%s is of one schedule, and cannot be a default; move it there", e.key)
		} else {
			r.tellUnknown(e, suggest(e.key, defaultKeys, keysOfOthers))
		}
		return true
	})
	it := r.newItem(v.line, given)
	it.schedule = schedule{Name: "defaults", Spec: "@daily", Kind: "shell", Command: "true"}
	it.readKeys()
	it.tellProblems()
	for _, e := range given {
		r.defaults[e.key] = e
	}
	for _, p := range it.wrong() {
		r.ofDefaults[p] = true
	}
}

// readSchedule reads a schedule of the list.
func (r *reader) readSchedule(v value) (schedule, bool) {
	before := r.failures
	given, ok := r.mapping("the schedule", v)
	if !ok {
		return schedule{}, false
	}
	it := r.newItem(v.line, given)
	for _, e := range given {
		if !slices.Contains(scheduleKeys, e.key) {
			r.tellUnknown(e, suggest(e.key, scheduleKeys, keysOfOthers))
		}
	}
	it.tellMissing("name", "name: NAME")
	it.tellMissing("spec", `spec: "30 3 * * *"`)
	it.readWork(given)
	it.readInput()
	it.readKeys()
	it.Key = keyOf(it.Name)
	it.tellProblems()
	it.checkName()
	return it.schedule, r.failures == before
}

func keyOf(name string) string { return "name:" + name }

func (it *item) tellMissing(name, example string) {
	_, given := it.given[name]
	if _, byDefault := it.defaults[name]; !given && !byDefault {
		it.fail(it.line, "the schedule has no %s; add %s", name, example)
		it.bad[name] = true
	}
}

// checkName refuses a name that another schedule of the file has.
func (it *item) checkName() {
	if it.bad["name"] {
		return
	}
	line := it.given["name"].line
	if first := it.names[it.Name]; first > 0 {
		it.fail(line, "the name %s is taken by the schedule on line %d; choose another", quoted(it.Name), first)
		return
	}
	it.names[it.Name] = line
}

// readKeys reads each key twice, first from the defaults: the schedule's own value overrides
// that, or adds to it.
func (it *item) readKeys() {
	for _, k := range keys {
		if e, ok := it.defaults[k.name]; ok && it.takes(k, e) {
			it.weigh(e.value)
			it.readKey(k, e)
		}
		if e, ok := it.given[k.name]; ok {
			it.readKey(k, e)
		}
	}
}

func (it *item) readKey(k key, e entry) {
	if !k.read(it, e) {
		it.bad[k.name] = true
	}
}

// takes reports whether a default applies to the schedule.
func (it *item) takes(k key, e entry) bool {
	switch {
	case k.name == "env":
		return it.Work() == "commands"
	case k.name == "on_success", k.name == "on_failure":
		return !e.value.is(it.Name) // otherwise a failing alarm would start itself
	case k.set != nil:
		return k.set.Has(it.Work())
	}
	return true
}

// tellProblems reports what the scheduler would refuse, with its line in the file. Problems of
// a default alone are reported once, at the default.
func (it *item) tellProblems() {
	for _, p := range it.wrong() {
		e, given := it.at[p.Field]
		if !given {
			e, given = it.given[p.Field]
		}
		switch {
		case given:
			it.fail(e.line, "%s: %s", e.key, p.Text)
		case !it.ofDefaults[p]:
			it.fail(it.line, "%s: %s", p.Field, p.Text)
		}
	}
}

// wrong returns the problems of the schedule, except those that follow from problems reported
// already.
func (it *item) wrong() (all []scheduler.Problem) {
	times := false
	for _, p := range it.Problems() {
		switch p.Field {
		case "spec", "time_zone", "dst":
			if !times {
				all = append(all, TimeProblems(&it.schedule, p)...)
			}
			times = true
		case "source": // the file does not give it, so the problem is the key
			all = append(all, scheduler.Problem{Field: "name", Text: "it is too long for a schedule from a file; shorten it"})
		default:
			all = append(all, p)
		}
	}
	return slices.DeleteFunc(all, func(p scheduler.Problem) bool { return it.bad[p.Field] })
}

// TimeProblems separates errors in spec, zone and rule, of which the scheduler reports one.
func TimeProblems(s *scheduler.Schedule, together scheduler.Problem) (all []scheduler.Problem) {
	for _, part := range []struct {
		field string
		only  scheduler.Schedule
	}{
		{"spec", scheduler.Schedule{Spec: s.Spec}},
		{"time_zone", scheduler.Schedule{Spec: "@daily", Zone: s.Zone}},
		{"dst", scheduler.Schedule{Spec: "@daily", DST: s.DST}},
	} {
		if _, err := part.only.Slots(); err != nil {
			text := strings.TrimPrefix(err.Error(), scheduler.ErrInvalid.Error()+": ")
			all = append(all, scheduler.Problem{Field: part.field, Text: text})
		}
	}
	if len(all) == 0 {
		all = append(all, together) // each is valid, but not together
	}
	return all
}
