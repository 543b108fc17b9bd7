package scheduler

import (
	"cmp"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/pace"
)

// The figures of docs/scheduler.md are those of the code, and so are those about stops of docs/queue-retries.md, which have the same rules.
func TestFiguresOfThePage(t *testing.T) {
	o, err := Options{}.filled()
	if err != nil {
		t.Fatal(err)
	}
	late := &candidate{now: dbtest.Start.AddDate(1, 0, 0)}
	late.Due = dbtest.Start
	pauses := pace.PauseAfter(3, 0) == 2*time.Minute && pace.PauseAfter(3, 1) == 3*time.Minute && pace.PauseAfter(4, 0) == 4*time.Minute
	dbtest.Promises(t, "../docs/scheduler.md", map[string]bool{
		"or ten minutes after its last daemon ended, what it had begun has failed":                  hostGone == 10*time.Minute,
		"A host that no daemon has been on for 90 days counts as new.":                              bootForget == 90*24*time.Hour,
		"with the last 8 KiB of the output":                                                         causeOutput == 8<<10,
		"While the run goes on, its output is updated every 3 seconds.":                             publishEvery == 3*time.Second,
		"keep such a statement much shorter than the lease (30 s)":                                  o.Lease == 30*time.Second,
		"A request without a `timeout` ends after 5 minutes.":                                       requestTimeout == 5*time.Minute,
		"An answer of more than 256 MiB fails it.":                                                  mostAnswered == 256<<20,
		"byte for byte, up to 1 MiB":                                                                maxText == 1<<20,
		"`all` runs the newest 100, oldest first":                                                   catchUpLimit == 100,
		"`queue` runs it afterwards (at most 100 wait)":                                             catchUpLimit == 100,
		"any time; 1m with skip":                                                                    skipWindow == time.Minute,
		"exit codes 126 and 127 are final":                                                          final("shell", guardian.Result{ExitCode: 126}) && final("argv", guardian.Result{ExitCode: 127}),
		"up to 3 crashes (`serve --max-crashes`)":                                                   o.MaxCrashes == 3,
		"up to 50 ms later while many schedules are due":                                            holdFor == 50*time.Millisecond,
		"stopped within a minute after they had begun the run":                                      pace.Soon == time.Minute,
		"After three it pauses for 2 to 3 minutes before the next attempt, then for twice as long.": pace.Suspicious == 3 && pauses,
		"It is `failed` at the fifth time, or at the twentieth, if it was never the only one":       pace.Most == 5 && pace.MostAny == 20,
		"which is tried again within a minute":                                                      putOffFor(late) == time.Minute,
	})
	dbtest.Promises(t, "../docs/queue-retries.md", map[string]bool{
		"counts the workers in a row that were stopped within a minute after they began the job":    pace.Soon == time.Minute,
		"| 3 or more | waits 2 to 3 minutes, then twice as long each time, up to 16 to 24 minutes.": pauses && pace.PauseAfter(19, 0) == 16*time.Minute && pace.PauseAfter(19, 1) == 24*time.Minute,
		"| 5 | is dead with": pace.Most == 5,
		"| 20 | is dead":     pace.MostAny == 20,
	})
}

// The defaults in the tables of docs/scheduler.md are those of the settings.
func TestDefaultsOfThePage(t *testing.T) {
	text, err := os.ReadFile("../docs/scheduler.md")
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	for _, set := range Settings() {
		defaults[set.Name] = cmp.Or(set.Default(), "none")
	}
	defaults["missed_window"] = "any time; 1m with skip"
	seen := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "|\n"), " | ")
		names := strings.Split(strings.ReplaceAll(cells[0], "`", ""), ", ")
		says := strings.Split(strings.TrimSpace(cells[len(cells)-1]), ", ")
		if !strings.HasPrefix(line, "| `") || len(says) != len(names) {
			continue // starts, ends (columns …): the end of a line is for both
		}
		for i, name := range names {
			is, known := defaults[strings.TrimSpace(name)]
			if !known {
				continue
			}
			if seen++; says[i] != is {
				t.Errorf("the page says that the default of %s is %q, and it is %q", name, says[i], is)
			}
		}
	}
	if seen < 22 {
		t.Errorf("the tables have the defaults of %d settings", seen)
	}
}

// The history keeps the head and the tail of a long output, and the job that it starts has the last part of that.
func TestALongOutputOfTheCause(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "job", Spec: "@manual", Kind: "job", Command: "tell"})
		addJob(t, db, Schedule{
			Name: "before", Spec: "@manual", Policy: Policy{OnSuccess: "job"},
			Command: "echo first; seq -f 'Zeile %.0f ä' 20000; echo last",
		})
		if _, err := Start(t.Context(), db.DB, "before"); err != nil {
			t.Fatal(err)
		}
		if err := daemon(t, db, Options{}).RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept := only(t, db, "before").Output
		if n := len(kept); n > 65<<10 || n < 60<<10 || !strings.HasPrefix(kept, "first\n") || !strings.HasSuffix(kept, "last\n") {
			t.Errorf("%d bytes of the output are kept, from %.20q to %q", n, kept, kept[max(0, n-20):])
		}
		var payload string
		db.Scan(t, `SELECT payload FROM {prefix}job`, nil, &payload)
		var slot Slot
		if err := json.Unmarshal([]byte(payload), &slot); err != nil || slot.Cause == nil {
			t.Fatalf("the job has %s, %v", payload, err)
		}
		if n := len(slot.Cause.Output); n > 8<<10 || n < 8<<10-4 || !strings.HasSuffix(kept, slot.Cause.Output) {
			t.Errorf("the job has %d bytes of it, to %q", n, slot.Cause.Output[max(0, n-20):])
		}
	})
}
