package scheduler

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// Schedules of another source, and of none, are taken over with their slots; the old source does
// not get them back, nor does it remove them.
func TestAdopt(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		line := Schedule{Name: "backup", Key: "line:1", Spec: "@every 1h", Command: "backup"}
		if _, err := Import(t.Context(), db.DB, "crontab", []Schedule{line}, ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		add(t, db, "by-hand", "@every 1h")
		before := stored(t, db, "backup")
		db.Advance(t, time.Minute)
		given := []Schedule{
			{Name: "backup", Key: "backup", Spec: "@every 1h", Command: "backup", Policy: Policy{Timeout: time.Hour}},
			{Name: "by-hand", Key: "by-hand", Spec: "@every 1h", Command: "true"},
			{Name: "new", Key: "new", Spec: "@every 1h", Command: "true"},
		}
		if _, err := Import(t.Context(), db.DB, "yaml", given, ImportOptions{}); !errors.Is(err, ErrExists) {
			t.Fatalf("without adopt: %v", err)
		}
		dry, err := Import(t.Context(), db.DB, "yaml", given, ImportOptions{Adopt: true, DryRun: true})
		if err != nil || !slices.Equal(dry.Adopted, []string{"backup", "by-hand"}) || stored(t, db, "backup").Source != "crontab" {
			t.Fatalf("dry: %+v, %v", dry, err)
		}
		c, err := Import(t.Context(), db.DB, "yaml", given, ImportOptions{Adopt: true})
		if err != nil || !slices.Equal(c.Adopted, []string{"backup", "by-hand"}) || !slices.Equal(c.Added, []string{"new"}) ||
			!slices.Contains(c.Changed, "backup") {
			t.Fatalf("adopted: %+v, %v", c, err)
		}
		after := stored(t, db, "backup")
		if after.ID != before.ID || after.Source != "yaml" || after.Key != "backup" || !after.Due.Equal(before.Due) ||
			after.Timeout != time.Hour {
			t.Errorf("was %+v, is %+v", before, after)
		}
		if c, err := Import(t.Context(), db.DB, "yaml", given, ImportOptions{Adopt: true}); err != nil || len(c.Adopted)+len(c.Changed) > 0 {
			t.Errorf("again: %+v, %v", c, err)
		}
		if _, err := Import(t.Context(), db.DB, "crontab", []Schedule{line}, ImportOptions{}); !errors.Is(err, ErrExists) {
			t.Errorf("by its old source: %v", err)
		}
		if c, err := Import(t.Context(), db.DB, "crontab", nil, ImportOptions{}); err != nil || len(c.Removed) > 0 {
			t.Errorf("the old source is empty: %+v, %v", c, err)
		}
	})
}
