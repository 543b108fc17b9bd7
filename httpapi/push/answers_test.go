package push

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
)

// An endpoint's answers are soon in the queue's row, with how it was throttled; when the
// endpoint is deleted, so is the row.
func TestAnswersAreNoted(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, all := client(t, db), NewEndpoints(db.DB)
		var well atomic.Bool
		r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
			if !well.Load() {
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, strings.Repeat("no ", 1000))
			}
		})
		other := receive(t, nil)
		point(t, db, c, "q", r.URL, nil)
		start(t, db, Options{Node: "here"})
		if found, err := all.Answers(t.Context(), "q"); err != nil || len(found) != 0 {
			t.Fatalf("at first: %v, %v", found, err)
		}
		first := enqueue(t, c, queue.Job{})
		newest := func(what string, is func(a *Answer) bool) (a Answer) {
			t.Helper()
			eventually(t, what, func() bool {
				found, err := all.Answers(t.Context(), "q")
				must(t, err)
				if len(found) > 0 {
					a = found[0]
				}
				return len(found) > 0 && is(&found[0])
			})
			return a
		}
		a := newest("its answer is noted", func(*Answer) bool { return true })
		if a.Status != 503 || a.Failures < 1 || a.Job != first || !strings.HasPrefix(a.By, "here:") || a.Origin != "" ||
			!strings.HasPrefix(a.Error, "HTTP 503 Service Unavailable: no no") || len(a.Error) > longestReason+3 {
			t.Errorf("got %+v", a)
		}
		if pause := a.Until.Sub(a.At); pause <= 0 || pause > 3*time.Second {
			t.Errorf("it is paused for %v", pause)
		}
		well.Store(true)
		a = newest("it is well", func(a *Answer) bool { return a.Error == "" })
		if a.Status != 200 || a.Failures != 0 || !a.Until.IsZero() || a.Took <= 0 {
			t.Errorf("got %+v", a)
		}
		becomes(t, c, enqueue(t, c, queue.Job{Endpoint: other.URL + "/x"}), "")
		a = newest("that of a job's own endpoint", func(a *Answer) bool { return a.Origin != "" })
		if a.Origin != other.URL {
			t.Errorf("it was sent to %q, not %q", a.Origin, other.URL)
		}

		reports, err := all.Reports(t.Context(), time.Hour, 10)
		must(t, err)
		if len(reports) != 1 || reports[0].Queue != "q" || len(reports[0].Answers) < 3 {
			t.Errorf("reports are %+v", reports)
		}
		must(t, all.Delete(t.Context(), "q"))
		if found, err := all.Answers(t.Context(), "q"); err != nil || len(found) != 0 {
			t.Errorf("after it was deleted: %v, %v", found, err)
		}
	})
}

// Processes that report at once lose nothing of each other, but for a moment in which there is
// no row yet.
func TestReportsOfMany(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		e := point(t, db, c, "q", "http://127.0.0.1:1/", nil)
		r := &reporter{db: db.DB}
		must(t, r.write(t.Context(), e.id, nil))
		var all sync.WaitGroup
		for i := range maxAnswers {
			all.Go(func() {
				a := Answer{At: dbtest.Start.Add(time.Duration(i) * time.Second), By: fmt.Sprint(i), Status: 200 + i}
				if err := r.write(t.Context(), e.id, []Answer{a}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		found, err := NewEndpoints(db.DB).Answers(t.Context(), "q")
		must(t, err)
		if len(found) != maxAnswers || found[0].Status != 200+maxAnswers-1 {
			t.Errorf("there are %d: %+v", len(found), found)
		}
	})
}

// The newest answers stay, and the newest of each process that is there.
func TestMerged(t *testing.T) {
	at := func(s int, by string) Answer {
		return Answer{At: dbtest.Start.Add(time.Duration(s) * time.Second), By: by}
	}
	var busy []Answer
	for i := range 2 * maxAnswers {
		busy = append(busy, at(i, "busy"))
	}
	some := merged(busy, []Answer{at(-5, "slow"), at(-6, "slow"), at(-4000, "gone")})
	if len(some) != maxAnswers+1 || some[maxAnswers].By != "slow" || some[0].At != at(2*maxAnswers-1, "").At {
		t.Errorf("got %v", some)
	}
	if got := decodeAnswers("{"); got != nil {
		t.Errorf("from what is no list: %v", got)
	}
}
