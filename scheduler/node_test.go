package scheduler

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A drained daemon claims nothing, takes nothing over, and finishes what it has; others
// continue, and so does it once it is undrained.
func TestDrain(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1h", Policy{Overlap: "allow"})
		s, other := daemon(t, db, Options{Node: "web-1:7", Version: "v1", Tags: []string{"default", "b"}}), daemon(t, db, Options{Node: "web-10"})
		for _, d := range []*Scheduler{s, other} {
			if err := d.stay(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		db.Advance(t, time.Hour)
		held := claimed(t, s, 1)
		if _, err := Drain(t.Context(), db.DB, "web", "ada"); !errors.Is(err, ErrNoNode) {
			t.Errorf("a name that nobody has: %v", err)
		}
		for range 2 { // the second changes nothing
			found, err := Drain(t.Context(), db.DB, "web-1", "ada")
			if err != nil || len(found) != 1 || found[0].Name != s.Node() || found[0].DrainedBy != "ada" || found[0].Drained.IsZero() ||
				found[0].Version != "v1" || found[0].Tags != "default,b" {
				t.Fatalf("drained %+v, %v", found, err)
			}
		}
		if runs, jobs, err := Begun(t.Context(), db.DB, "web-1"); runs != 1 || jobs != 0 || err != nil {
			t.Errorf("it has %d runs and %d jobs, %v", runs, jobs, err)
		}
		db.Advance(t, time.Hour)
		if err := s.stay(t.Context()); err != nil { // a heartbeat takes nothing back
			t.Fatal(err)
		}
		step := func(d *Scheduler) {
			t.Helper()
			if _, err := d.step(t.Context(), t.Context()); err != nil {
				t.Fatal(err)
			}
			d.runs.Wait()
		}
		step(s)
		finished(t, s, held[0], 0)
		wantRows(t, db, "job", "3600 1 ok")
		if runs, _, err := Begun(t.Context(), db.DB, s.Node()); runs != 0 || err != nil {
			t.Errorf("it has %d runs, %v", runs, err)
		}
		step(other)
		wantRuns(t, db, "job", 2)
		db.Advance(t, time.Hour)
		step(s)
		wantRuns(t, db, "job", 2)
		if found, err := Undrain(t.Context(), db.DB, s.Node()); err != nil || len(found) != 1 ||
			!found[0].Drained.IsZero() || found[0].DrainedBy != "" {
			t.Errorf("undrained %+v, %v", found, err)
		}
		step(s)
		wantRuns(t, db, "job", 3)
		s.depart(t.Context())
		if _, err := Drain(t.Context(), db.DB, "web-1", ""); !errors.Is(err, ErrNoNode) {
			t.Errorf("one that has ended: %v", err)
		}
	})
}

// wantRuns checks how many runs of a schedule there are, whatever came of them.
func wantRuns(t *testing.T, db *dbtest.DB, name string, want int) {
	t.Helper()
	if got := len(allRuns(t, db, name)); got != want {
		t.Errorf("%d runs of %s, want %d", got, name, want)
	}
}

// The parts of a process are one, named by host and process.
func TestProcesses(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }
	got := Processes([]Node{
		{Name: "d:1", State: "live", Live: true},
		{Name: "d:2", State: "gone"},
		{Name: "web:7:a", State: "live", Until: at(5), Started: at(1), Version: "v1"}, // it has lost its lease, and goes on under another name
		{Name: "web:7:b", State: "live", Live: true, Until: at(9), Started: at(2), Tags: "default", Drained: at(3), DrainedBy: "ada"},
		{Name: "web:7:c", State: "gone", Until: at(12), Started: at(0)},
		{Name: "web:8:a", State: "live", Until: at(4), Started: at(3)},
		{Name: "web:8:b", State: "live", Until: at(6), Started: at(2)},
	})
	want := []Node{
		{Name: "d:1", State: "live", Live: true},
		{Name: "d:2", State: "gone"},
		{Name: "web:7", State: "live", Live: true, Until: at(9), Started: at(0), Version: "v1", Tags: "default", Drained: at(3), DrainedBy: "ada"},
		{Name: "web:8", State: "live", Until: at(6), Started: at(2)},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	s, err := New(nil, Options{})
	if host, _ := os.Hostname(); err == nil {
		if n := (&Node{Name: s.Node()}); n.Process() != fmt.Sprintf("%s:%d", host, os.Getpid()) {
			t.Errorf("a scheduler is named %s", s.Node())
		}
	}
}
