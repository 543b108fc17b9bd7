package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
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
	flagTwice    = flag.Bool("twice", false, "run each seed twice, and fail if something else happens")
	flagShow     = flag.String("show", "", "print the events that mention this; all: all events")
	flagAcross   = flag.Int("across", 0, "run each seed in a process of its own, so many at a time")
	flagShrink   = flag.Duration("shrink", time.Minute, "how long to look for less that breaks the same promise, for the first seeds that break one")
	flagKeep     = flag.String("keep", "", "write the scenario that breaks a promise to testdata, under this name")
	flagTotals   = flag.String("totals", "", "a file to which the sums of this run are added")
	flagTemplate = flag.String("template", "", "a file with dbcron's tables, made by -across")
	flagEvents   = flag.String("events", "", "the file to write all events to")
	flagOutcome  = flag.String("outcome", "", "the file to write the outcome of the one seed to, instead of a table")
	flagUntil    = flag.String("until", "", "end as soon as a violation of this kind is found, and write nothing but it to the outcome")
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

// TestSimulation lives through each seed of each workload, and prints what was done; without flags, through the
// scenarios of testdata, too. It does so in this process, where only the inputs repeat, unless -across is given.
func TestSimulation(t *testing.T) {
	with, err := parseKnobs(*flagWith)
	if err != nil {
		t.Fatal(err)
	}
	all := scenarios(with)
	if *flagAcross > 0 {
		acrossProcesses(t, os.Args[0], all)
		return
	}
	if *flagWorkload == "" && *flagWith == "" {
		all = append(all, kept(t)...)
	}
	var lives []outcome
	for _, s := range all {
		t.Run(fmt.Sprint(s.workload, "/", s.seed), func(t *testing.T) { lives = append(lives, liveHere(t, s)) })
	}
	if *flagOutcome == "" {
		conclude(t, lives, len(with) == 0)
	}
}

// TestRepeats lives through each seed and each scenario twice, as make sim does, and compares hashes of all events.
func TestRepeats(t *testing.T) {
	if os.Getenv("DBCRON_TEST_LONG") != "true" { // not dbtest: all drivers would be built with another runtime, too
		t.Skip("make proof: building all packages with another runtime takes two minutes of a processor")
	}
	*flagAcross, *flagTwice = 2, true
	acrossProcesses(t, build(t, overlay(t)), append(scenarios(nil), kept(t)...))
}

// scenarios are those that the flags ask for.
func scenarios(with map[string]int) (all []scenario) {
	for _, one := range workloads {
		if *flagWorkload != "" && !slices.Contains(strings.Split(*flagWorkload, ","), one.name) {
			continue
		}
		for seed := *flagFirst; seed < *flagFirst+uint64(*flagSeeds); seed++ {
			all = append(all, scenario{one.name, seed, *flagMinutes, with})
		}
	}
	return all
}

// liveHere lives through a scenario in this process.
func liveHere(t *testing.T, s scenario) outcome {
	t.Helper()
	began := time.Now() //nolint:forbidigo // how long it takes
	r := run(t, s)
	r.Took = time.Since(began)
	for i, v := range r.Broken {
		if i < atLength {
			t.Error(r.explain(v))
		} else {
			t.Errorf("%s: %s", v.Kind, v.Text)
		}
	}
	if *flagEvents != "" {
		r.writeEvents(t, *flagEvents)
	}
	if *flagShow != "" {
		r.show(os.Stdout, *flagShow)
	}
	if *flagOutcome != "" {
		writeJSON(t, *flagOutcome, &r.outcome)
	}
	return r.outcome
}

// endAt ends the process at a violation that was looked for.
func endAt(v violation) {
	text, err := json.Marshal(&outcome{Broken: []violation{v}})
	if err == nil {
		err = os.WriteFile(*flagOutcome, text, 0o600)
	}
	if err != nil {
		fmt.Println(err)
	}
	os.Exit(1)
}

// conclude prints what was done, and fails if something was not reached that the workloads claim to reach.
func conclude(t *testing.T, all []outcome, drawn bool) {
	t.Helper()
	sums := sumUp(all)
	printSums(os.Stdout, sums)
	if *flagTotals != "" {
		sums = addTotals(t, *flagTotals, sums)
	}
	for _, one := range workloads {
		for _, sum := range sums {
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
	fmt.Fprintf(&out, "%s: %s\n", v.Kind, v.Text)
	fmt.Fprintf(&out, "  again: %s\n", r.scenario)
	fmt.Fprintf(&out, "  drawn: %s\n", knobsText(r.Knobs))
	fmt.Fprintf(&out, "  its history:\n")
	r.history.about(&out, *flagLines, v.About...)
	return out.String()
}

// writeEvents writes all events, a line each.
func (r *report) writeEvents(t *testing.T, file string) {
	t.Helper()
	var out strings.Builder
	for i := range r.history.events {
		e := &r.history.events[i]
		fmt.Fprintf(&out, "%d %s\n", e.at, e)
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
