package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// A job keeps the errors of the newest attempts, whichever tables it passes through, and whoever retries it.
func TestErrorsOfAttempts(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); keeps(q) })
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "bury", func(ctx context.Context, d *Delivery) error {
			if d.Attempt == 1 {
				return errors.New("first\nof two lines")
			}
			must(t, d.SetProgress(ctx, Progress{Percent: 1})) // checks it out
			return Bury(errors.New("no use"))
		})
		handle(t, w, "thrice", func(_ context.Context, d *Delivery) error {
			if d.Attempt < 4 {
				return fmt.Errorf("failure %d", d.Attempt)
			}
			return nil
		})
		handle(t, w, "many", func(_ context.Context, d *Delivery) error { return errors.New(strings.Repeat("é", 5000)) })
		buried := enqueue(t, c, Job{Kind: "bury", MaxAttempts: 3, Key: "k"})
		thrice := enqueue(t, c, Job{Kind: "thrice", MaxAttempts: 9})
		many := enqueue(t, c, Job{Kind: "many", MaxAttempts: 30})
		start(t, w)

		says := func(i admin.Job) (all []string) {
			for _, e := range i.Errors {
				all = append(all, fmt.Sprint(e.Attempt, " ", e.Error))
				if age := i.At.Sub(e.At); age < 0 || age > time.Hour {
					t.Errorf("attempt %d failed at %v, and the job ended at %v", e.Attempt, e.At, i.At)
				}
			}
			return all
		}
		first := []string{"2 no use\nits handler gave the job up after attempt 2 of 3", "1 first\nof two lines"}
		if got, want := says(becomes(t, c, buried, admin.StateDead)), first; !slices.Equal(got, want) {
			t.Errorf("buried: got %q, want %q", got, want)
		}
		if got, want := says(becomes(t, c, thrice, admin.StateDone)), []string{"3 failure 3", "2 failure 2", "1 failure 1"}; !slices.Equal(got, want) {
			t.Errorf("done: got %q, want %q", got, want)
		}
		long := becomes(t, c, many, admin.StateDead)
		if n := len(long.Errors); n < 5 || n > 20 || long.Errors[0].Attempt != 30 || long.Errors[n-1].Attempt != 31-n {
			t.Errorf("%d errors: %v", n, long.Errors)
		}

		must(t, adminOf(c).Retry(t.Context(), "", buried))
		eventually(t, "it died again, with the errors of its first life", func() bool {
			return slices.Equal(says(becomes(t, c, buried, admin.StateDead)), append(first, first...))
		})
	})
}
