package simulation

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	flagSeeds    = flag.Int("seeds", 2, "how many seeds of each workload")
	flagFirst    = flag.Uint64("first", 1, "the first seed")
	flagMinutes  = flag.Float64("minutes", 0.5, "virtual minutes with faults, for each seed")
	flagWorkload = flag.String("workload", "", "only these workloads, comma-separated")
	flagWith     = flag.String("with", "", "knobs that are not drawn: name=number, comma-separated")
	flagTwice    = flag.Bool("twice", false, "with -across: run each seed twice, and fail if something else happens")
	flagShow     = flag.String("show", "", "print the events that mention this; all: all events")
	flagAcross   = flag.Int("across", 0, "run each seed in a process of its own, so many at a time")
	flagTemplate = flag.String("template", "", "a file with dbcron's tables, made by -across")
	flagEvents   = flag.String("events", "", "the file to write all events to")
	flagUntil    = flag.String("until", "", "end with the first seed that has a violation of this kind, and say which")
	flagSums     = flag.String("sums", "", "the file to write what was done to, instead of a table")
	flagLines    = flag.Int("lines", 60, "how many events a violation prints at the most")
)

// enough is how many seeds of a workload must reach everything that it claims to reach.
const enough = 40

// atLength is how many violations of a seed are printed with what led to them.
const atLength = 2

func init() { runtime.MemProfileRate = 0 } // the runtime draws when to look at an allocation

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1) // so that a seed does the same more often; several seeds run in several processes
	os.Exit(m.Run())
}

// TestSimulation lives through each seed of each workload, and prints what was done.
func TestSimulation(t *testing.T) {
	with, err := parseKnobs(*flagWith)
	if err != nil {
		t.Fatal(err)
	}
	if *flagAcross > 0 {
		acrossProcesses(t, len(with) == 0)
		return
	}
	var all []summary
	for _, one := range workloads {
		if *flagWorkload != "" && !slices.Contains(strings.Split(*flagWorkload, ","), one.name) {
			continue
		}
		sum := summary{Workload: one.name, Done: map[string]int{}, Reached: map[string]int{}, Broken: map[string]int{}}
		for seed := *flagFirst; seed < *flagFirst+uint64(*flagSeeds); seed++ {
			t.Run(fmt.Sprint(one.name, "/", seed), func(t *testing.T) {
				s := scenario{one.name, seed, *flagMinutes, with}
				began := time.Now() //nolint:forbidigo // how long it takes
				r := run(t, s)
				sum.add(&r, time.Since(began))
				for i, v := range r.broken {
					if i < atLength {
						t.Error(r.explain(v))
					} else {
						t.Errorf("%s: %s", v.kind, v.text)
					}
				}
				for _, v := range r.broken {
					if v.kind == *flagUntil {
						fmt.Printf("found: seed %d: %s\n", seed, v.kind)
						os.Exit(1)
					}
				}
				if *flagEvents != "" {
					r.writeEvents(t, *flagEvents)
				}
				if *flagShow != "" {
					r.show(os.Stdout, *flagShow)
				}
			})
		}
		all = append(all, sum)
	}
	if *flagSums != "" {
		writeSums(t, *flagSums, all)
		return
	}
	conclude(t, all, len(with) == 0)
}

// conclude prints what was done, and fails if something was not reached that the workloads claim to reach.
func conclude(t *testing.T, all []summary, drawn bool) {
	t.Helper()
	printSummaries(os.Stdout, all)
	for _, one := range workloads {
		for _, sum := range all {
			if sum.Workload != one.name || sum.Runs < enough || !drawn {
				continue
			}
			for _, claim := range one.make().Claims() {
				if sum.Reached[claim] == 0 {
					t.Errorf("%s: none of %d seeds has reached: %s", one.name, sum.Runs, claim)
				}
			}
		}
	}
}

// explain says what was broken, how to see it again, and what led to it.
func (r *report) explain(v violation) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", v.kind, v.text)
	fmt.Fprintf(&out, "  again: make sim WORKLOAD=%s SEED=%d MINUTES=%v%s\n", r.workload, r.seed, r.minutes, r.flags())
	fmt.Fprintf(&out, "  drawn: %s\n", knobsText(r.knobs))
	fmt.Fprintf(&out, "  its history:\n")
	r.history.about(&out, *flagLines, v.about...)
	return out.String()
}

func (r *report) flags() string {
	if len(r.with) == 0 {
		return ""
	}
	return " WITH=" + strings.ReplaceAll(knobsText(r.with), " ", ",")
}

// writeEvents writes all events without their arguments, a line each.
func (r *report) writeEvents(t *testing.T, file string) {
	t.Helper()
	var out strings.Builder
	for i := range r.history.events {
		e := r.history.events[i]
		e.args = nil
		fmt.Fprintf(&out, "%d %s\n", e.at, e.String())
	}
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *report) show(out io.Writer, what string) {
	for i := range r.history.events {
		if e := &r.history.events[i]; what == "all" || e.mentions([]string{what}) {
			fmt.Fprintln(out, e)
		}
	}
}

func knobsText(knobs map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(knobs)) {
		all = append(all, fmt.Sprintf("%s=%d", name, knobs[name]))
	}
	return strings.Join(all, " ")
}

func parseKnobs(text string) (map[string]int, error) {
	all := map[string]int{}
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, value, _ := strings.Cut(one, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("%q: write name=number", one)
		}
		all[name] = n
	}
	return all, nil
}
