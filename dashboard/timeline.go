package dashboard

import (
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
)

// A moment is a past or future event of a job.
type moment struct {
	At    time.Time // zero: the tables do not say when
	What  string
	Why   string // further details
	State string // determines its appearance
	Ahead bool   // in the future
}

// timelineOf returns the history of a job as far as its row shows it: the row has the number of
// attempts, and the errors of the newest that failed.
func timelineOf(i *admin.Job, limit int, now time.Time) (all []moment) {
	all = append(all, moment{At: i.Enqueued, What: "Enqueued", State: "ready"})
	failed := i.Attempts
	if failed > 0 && (i.State == admin.StateRunning || i.State == admin.StateDone) {
		failed-- // the last attempt runs, or succeeded
	}
	if i.Discarded {
		failed = max(0, i.Attempts-1)
	}
	kept := i.Errors
	if len(kept) > 0 && i.State == admin.StateDead {
		kept = kept[1:] // see lastMoments
	}
	oldest := failed
	if len(i.Errors) > 0 {
		oldest = i.Errors[len(i.Errors)-1].Attempt
	}
	if oldest > 1 {
		all = append(all, moment{
			What: earlier(oldest - 1), Why: "Their errors are not kept; see the workers' logs.",
			State: "failed",
		})
	}
	for _, e := range slices.Backward(kept) {
		all = append(all, moment{At: e.At, What: fmt.Sprintf("Attempt %d failed", e.Attempt), Why: plain.Cut(e.Error, 300), State: "failed"})
	}
	if len(i.Errors) == 0 && failed > 0 && i.State != admin.StateDead {
		m := moment{What: fmt.Sprintf("Attempt %d failed", failed), Why: plain.Cut(i.Error, 300), State: "failed"}
		if i.State == admin.StateDone {
			m.Why = ""
		}
		all = append(all, m)
	}
	if i.Crashes > 0 {
		all = append(all, moment{What: plain.Plural(i.Crashes, "worker", "workers") + " died with it", State: "lost"})
	}
	return append(all, lastMoments(i, failed, limit, now)...)
}

func earlier(n int) string {
	if n == 1 {
		return "Attempt 1 failed"
	}
	return fmt.Sprintf("Attempts 1 to %d failed", n)
}

// lastMoments returns the events of the job's current state.
func lastMoments(i *admin.Job, failed, limit int, now time.Time) []moment {
	next := fmt.Sprintf("Attempt %d of %s", failed+1, plain.Number(limit))
	switch i.State {
	case admin.StateReady:
		return []moment{{
			What: next, Why: "It is ready, and has waited for " + plain.Span(now.Sub(i.Enqueued)) + ".",
			State: "ready", Ahead: true,
		}}
	case admin.StateDelayed:
		return []moment{{At: i.At, What: next, Why: "It is due then.", State: "delayed", Ahead: i.At.After(now)}}
	case admin.StateRunning:
		return []moment{{At: i.At, What: fmt.Sprintf("Attempt %d began", max(1, i.Attempts)), Why: "It runs for " +
			plain.Span(now.Sub(i.At)) + " on " + plain.Clean(i.Worker) + ".", State: "running"}}
	case admin.StateDead:
		what := "It died"
		if failed > 0 {
			what = fmt.Sprintf("Attempt %d failed, and it died", failed)
		}
		why := i.Error
		if len(i.Errors) > 0 {
			why = i.Errors[0].Error
		}
		return []moment{{At: i.At, What: what, Why: plain.Cut(why, 300), State: "dead"}}
	case admin.StateDone:
		end := moment{At: i.At, What: "Done", Why: "It took " + plain.Span(i.At.Sub(i.Started)) + ".", State: "done"}
		if i.Discarded {
			end.What, end.Why, end.State = "Discarded", plain.Cut(i.Error, 300), "skipped"
		}
		if i.Cancelled {
			return []moment{{At: i.At, What: "Cancelled", State: "skipped"}}
		}
		return []moment{{At: i.Started, What: fmt.Sprintf("Attempt %d began", max(1, i.Attempts)), Why: "On " +
			plain.Clean(i.Worker) + ".", State: "running"}, end}
	}
	return nil
}
