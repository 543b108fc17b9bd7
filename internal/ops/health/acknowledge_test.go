package health

import (
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/queue/admin"
)

// A finding is the same until it changes.
func TestIdentity(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	run := Problem{Of: Runs, Name: "nightly", Run: 7, Bad: true, what: "A run of %s failed", Since: at}
	behind := Problem{Of: Queues, Name: "mail", Bad: true, what: "Queue %s is behind", Why: "2 ready", Since: at}
	died := Problem{Of: Queues, Name: "mail", Dead: true, what: "2 jobs of queue %s died", change: "1000"}
	for _, c := range []struct {
		name   string
		is     Problem
		change func(p *Problem)
		same   bool
	}{
		{"the same run, seen again", run, func(p *Problem) { p.Why = "2 times in a day" }, true},
		{"another run", run, func(p *Problem) { p.Run, p.Since = 8, at.Add(time.Hour) }, false},
		{"another schedule", run, func(p *Problem) { p.Name = "weekly" }, false},
		{"it grows", behind, func(p *Problem) { p.Why, p.Since = "9 ready", at.Add(time.Minute) }, true},
		{"it is worse", behind, func(p *Problem) { p.Bad = false }, false},
		{"fewer died in the last day", died, func(p *Problem) { p.what = "1 job of queue %s died" }, true},
		{"fewer died, and none since then", died, func(p *Problem) { p.what = "3 jobs of queue %s died" }, true},
		{"one more died", died, func(p *Problem) { p.change = "1060" }, false},
	} {
		other := c.is
		c.change(&other)
		if same := c.is.ID() == other.ID(); same != c.same {
			t.Errorf("%s: the same is %v", c.name, same)
		}
	}
	if id := (&Problem{Of: Queues, what: "3 more queues are behind"}).ID(); id != "" {
		t.Errorf("what counts others has the id %s", id)
	}
	slow, slower := Check{Name: "clock", Status: Warning, Detail: "3s behind"}, Check{Name: "clock", Status: Warning, Detail: "14s behind"}
	if slow.ID() == "" || slow.ID() != slower.ID() || (&Check{Name: "clock", Status: OK}).ID() != "" {
		t.Errorf("got %q and %q", slow.ID(), slower.ID())
	}
}

// The newest entry about a finding counts, for a time.
func TestAcknowledged(t *testing.T) {
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		now := time.Now() //nolint:forbidigo // of a look, which only differs by minutes from the database's
		write := func(action, id string) {
			t.Helper()
			_, err := audit.Write(t.Context(), db.DB, audit.Entry{
				Actor: "ada@host", Login: audit.OS, Source: audit.CLI, Action: action, Object: id, Count: 1,
				Detail: Acknowledging("A run of nightly failed", "the disk comes on Monday"),
			})
			dbtest.Must(t, err)
		}
		known := func(at time.Time) map[string]audit.Entry {
			t.Helper()
			all, err := Acknowledged(t.Context(), db.DB, at)
			dbtest.Must(t, err)
			return all
		}
		problem := Problem{Of: Runs, Name: "nightly", Run: 7, what: "A run of %s failed"}
		for i, action := range []string{Acknowledge, Reopen, Acknowledge} {
			write(action, problem.ID())
			left := Unknown([]Problem{problem}, known(now))
			if is := len(left) == 0; is != (action == Acknowledge) {
				t.Errorf("%d. %s: it is known: %v", i, action, is)
			}
		}
		e := known(now)[problem.ID()]
		if got := KnownText(&e, e.At.Add(2*time.Hour)); got != "acknowledged by ada@host 2h ago: the disk comes on Monday" {
			t.Errorf("got %q", got)
		}
		if got := KnownText(&e, e.At.Add(-time.Minute)); got != "acknowledged by ada@host just now: the disk comes on Monday" {
			t.Errorf("got %q", got)
		}
		if all := known(now.Add(KnownFor + time.Hour)); len(all) > 0 {
			t.Errorf("after %v it is still known: %v", KnownFor, all)
		}
	})
}

// The minute in which the last job died is known.
func TestDeaths(t *testing.T) {
	first := time.Unix(60, 0)
	got := DeathsOf([]admin.Finished{
		{Queue: "mail", Dead: 1, LastDead: first.Add(time.Hour)}, {Queue: "mail", Kind: "x", Dead: 2, LastDead: first}, {Queue: "mail", Kind: "y"}, {Queue: "pdf"},
	})
	if want := (Deaths{3, first.Add(time.Hour)}); len(got) != 1 || got["mail"] != want {
		t.Errorf("got %v", got)
	}
}
