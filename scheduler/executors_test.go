//go:build unix

package scheduler

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A daemon claims more runs of a function that is quick than it has places, and executes no more
// at a time than it has. If the function becomes slow, the runs for which no place becomes free
// go to another daemon, and each slot is still executed once.
func TestQuickFunctionsAreClaimedAhead(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		const n, places = 12, 2
		for i := range n {
			addJob(t, db, Schedule{Name: fmt.Sprint("s", i), Kind: "func", Command: "f"})
		}
		var here dbtest.Crowd
		blocked := make(chan struct{})
		close(blocked)
		s := daemon(t, db, Options{MaxRuns: places})
		handle(t, s, "f", func(context.Context, *Running) error {
			here.Enter()
			defer here.Leave()
			<-blocked
			return nil
		})
		lane := (&Schedule{Tag: "default", Kind: "func", Command: "f"}).lane()
		if got := s.room(lane); got != places {
			t.Errorf("room for %d runs of a function that nobody knows, want %d", got, places)
		}
		db.Advance(t, time.Hour)
		work(t, s)
		if _, most, all := here.Counts(); most > places || all != n {
			t.Fatalf("%d runs, %d at a time; want %d, and at most %d", all, most, n, places)
		}
		for range 100 { // however slow this machine was
			s.noteTook(lane, time.Microsecond)
		}
		if got := s.room(lane); got < n {
			t.Errorf("room for %d runs of a quick function, want %d or more", got, n)
		}

		blocked = make(chan struct{})
		db.Advance(t, time.Hour)
		for s.busy() < n {
			if _, err := s.step(t.Context(), context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "what has no place is handed back", func() bool { return s.busy() == places })
		if got := s.room(lane); got > 0 {
			t.Errorf("room for %d runs, and no place is free", got)
		}
		var there dbtest.Crowd
		other := daemon(t, again(t, db), Options{})
		handle(t, other, "f", func(context.Context, *Running) error { there.Enter(); return nil })
		work(t, other)
		if _, _, all := there.Counts(); all != n-places {
			t.Errorf("the other daemon executed %d runs, want %d", all, n-places)
		}
		close(blocked)
		s.runs.Wait()
		if _, most, all := here.Counts(); most > places || all != n+places {
			t.Errorf("%d runs, %d at a time; want %d, and at most %d", all, most, n+places, places)
		}
		states := map[string]int{}
		for _, r := range allRuns(t, db, "") {
			states[r.State]++
		}
		if want := (map[string]int{"ok": 2 * n, "retry": n - places}); !maps.Equal(states, want) {
			t.Errorf("runs by state: %v, want %v", states, want)
		}
	})
}

// Runs that were claimed ahead leave room for others.
func TestRoomBesideWhatIsClaimedAhead(t *testing.T) {
	s := daemon(t, &dbtest.DB{}, Options{MaxRuns: 4})
	quick := Schedule{Name: "f", Tag: "default", Kind: "func", Command: "f"}
	s.noteTook(quick.lane(), time.Millisecond)
	for i := range int64(50) {
		s.enter(newExecution(run{id: i, what: &quick}))
	}
	slow := Schedule{Name: "c", Tag: "default", Kind: "shell"}
	if got := s.room(slow.lane()); got != 4 {
		t.Errorf("room for %d commands, want 4", got)
	}
	for i := range int64(3) {
		e := newExecution(run{id: 100 + i, what: &slow})
		s.enter(e)
		if err := s.acquireExecutor(e); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.room(slow.lane()); got != 1 {
		t.Errorf("room for %d commands, want 1", got)
	}
	if got := s.room(quick.lane()); got != 20 { // what one place does within turnover
		t.Errorf("room for %d quick functions, want 20", got)
	}
}
