package scheduler

import (
	"errors"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// Set makes a schedule or changes it, and leaves the rest of it as it is. What it refuses
// has changed nothing.
func TestSet(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		set := func(name string, change func(s *Schedule)) (Schedule, bool, error) {
			return Set(t.Context(), db.DB, name, func(s *Schedule, _ bool) error {
				change(s)
				return nil
			})
		}
		s, isNew, err := set("a", func(s *Schedule) { s.Spec, s.Command, s.Stdin, s.MaxAttempts = "@daily", "true", "in", 3 })
		if err != nil || !isNew || s.Due.IsZero() || s.ID == 0 {
			t.Fatalf("got %+v, %v, %v", s, isNew, err)
		}
		paused(t, db, "a")
		s, isNew, err = set("a", func(s *Schedule) { s.Spec, s.Name, s.State = "@hourly", "other", "active" })
		if err != nil || isNew || s.Name != "a" || s.Spec != "@hourly" || s.Stdin != "in" || s.MaxAttempts != 3 || s.State != "paused" {
			t.Errorf("got %+v, %v, %v", s, isNew, err)
		}
		for _, name := range []string{"a", "b"} {
			if _, _, err := set(name, func(s *Schedule) { s.Spec, s.Command = "x", "true" }); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v", err)
			}
			mine := errors.New("mine")
			if _, _, err := Set(t.Context(), db.DB, name, func(*Schedule, bool) error { return mine }); !errors.Is(err, mine) {
				t.Errorf("got %v", err)
			}
		}
		if _, err := Import(t.Context(), db.DB, "file:/x", []Schedule{{Name: "managed", Key: "k", Spec: "@daily", Command: "true"}}, ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := set("managed", func(s *Schedule) { s.Command = "false" }); !errors.Is(err, ErrManaged) {
			t.Errorf("got %v", err)
		}
		all, err := List(t.Context(), db.DB, "", 10)
		if err != nil || len(all) != 2 || all[0].Spec != "@hourly" || all[1].Command != "true" {
			t.Errorf("there are %+v, %v", all, err)
		}
	})
}
