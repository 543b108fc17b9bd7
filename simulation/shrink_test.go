package simulation

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// shrunkEach is how many seeds that break a promise of one kind are shrunk.
const shrunkEach = 2

func (a *across) mayShrink(s scenario, o *outcome) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := s.workload + " " + o.Broken[0].Kind
	a.shrunk[kind]++
	return *flagShrink > 0 && a.shrunk[kind] <= shrunkEach
}

// shrink looks for less that breaks a promise of the same kind: a shorter life, fewer faults, and the plainest
// settings, which are those that a knob names first. What it keeps has broken the promise; so an option that
// is left is needed, as far as leaving it out alone, or halving it, can show. It returns a report.
func (a *across) shrink(s scenario, kind string) string {
	ctx, cancel := context.WithTimeout(a.t.Context(), *flagShrink)
	defer cancel()
	began, lives := time.Now(), 0 //nolint:forbidigo // how long it takes
	best, text := s, ""
	try := func(candidate scenario) (*outcome, bool) {
		lives++
		o, out, _ := a.live(ctx, candidate)
		if ctx.Err() != nil || !slices.ContainsFunc(o.Broken, func(v violation) bool { return v.Kind == kind }) {
			return nil, false
		}
		best, text = candidate, out
		return &o, true
	}
	now, breaks := try(s)
	if !breaks {
		return fmt.Sprintf("It did not break a promise of the kind %q again: see what stays free in CONTRIBUTING.md.\n", kind)
	}
	for again := true; again && ctx.Err() == nil; {
		again = false
		for _, candidate := range best.less(now) {
			if o, breaks := try(candidate); breaks {
				now, again = o, true
				break // what is less than this is something else
			}
			if ctx.Err() != nil {
				break
			}
		}
	}
	return fmt.Sprintf("Shrunk from %s in %v, %d lives:\n%s%s", s, time.Since(began).Round(time.Second), lives, text, a.keep(best, kind))
}

// less returns scenarios with less than this one in which something happens, those that leave out most first.
func (s scenario) less(o *outcome) (all []scenario) {
	add := func(minutes float64, knobs map[string]int) {
		c := s
		c.minutes, c.with = minutes, maps.Clone(s.with)
		if c.with == nil {
			c.with = map[string]int{}
		}
		maps.Copy(c.with, knobs)
		all = append(all, c)
	}
	names := slices.Sorted(maps.Keys(o.Knobs))
	off := map[string]int{}
	plain := map[string]int{}
	for _, name := range names {
		if o.Knobs[name] == o.Plain[name] {
			continue
		}
		if plain[name] = o.Plain[name]; strings.HasPrefix(name, "fault.") {
			off[name] = 0
		}
	}
	if len(plain) > 1 {
		add(s.minutes, plain)
	}
	if len(off) > 1 {
		add(s.minutes, off)
	}
	if s.minutes > 0.1 {
		add(float64(int(s.minutes*50))/100, nil)
	}
	for _, name := range names {
		if _, differs := plain[name]; !differs {
			continue
		}
		add(s.minutes, map[string]int{name: plain[name]})
		if half := o.Knobs[name] / 2; half > plain[name] && !strings.HasPrefix(name, "fault.") {
			add(s.minutes, map[string]int{name: half})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Strikes)) {
		from, to := max(1, s.with[name+".from"]), o.Strikes[name]
		if most, is := s.with[name+".to"]; is {
			to = min(to, most)
		}
		if from >= to || s.with[name+".to"] == 0 && o.Knobs[name] == 0 {
			continue
		}
		middle := (from + to) / 2
		add(s.minutes, map[string]int{name + ".from": from, name + ".to": middle})
		add(s.minutes, map[string]int{name + ".from": middle + 1, name + ".to": to})
	}
	return all
}

// keep writes a scenario to testdata, if that was asked for, and says how otherwise.
func (a *across) keep(s scenario, kind string) string {
	if *flagKeep == "" {
		return "  keep:  the same with KEEP=name writes simulation/testdata/name.txt, which make test lives through\n"
	}
	file := filepath.Join("testdata", *flagKeep+".txt")
	err := os.MkdirAll("testdata", 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(s.file("It has broken a promise: "+kind)), 0o644) //nolint:gosec // a file of the repository
	}
	if err != nil {
		a.t.Error(err)
	}
	return "  kept:  simulation/" + file + "\n"
}
