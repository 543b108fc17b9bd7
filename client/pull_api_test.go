package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/wire"
)

func needQueue(t *testing.T, c *client.Client) {
	t.Helper()
	_, err := c.SetQueue(t.Context(), "q", wire.QueueChange{})
	must(t, err)
}

func TestWorkersAndTheAPI(t *testing.T) {
	eachAPI(t, func(t *testing.T, _ *dbtest.DB, api http.Handler) {
		c := serve(t, api, client.Options{})
		needQueue(t, c)
		const n = 60
		jobs := make([]client.Job, n)
		for i := range jobs {
			jobs[i] = client.Job{Kind: "even", Queue: "q", Payload: i}
			switch i {
			case 10:
				jobs[i].Kind = "failed"
			case 20:
				jobs[i].Kind = "dead"
			case 30:
				jobs[i].Kind = "discard"
			}
		}
		ids, err := c.EnqueueBatch(t.Context(), client.Batch{Jobs: jobs})
		must(t, err)
		var mu sync.Mutex
		times := map[int]int{}
		opt := client.WorkOptions{Concurrency: 5, Handle: func(_ context.Context, j *wire.Claim) (any, error) {
			var i int
			if err := j.Decode(&i); err != nil {
				return nil, err
			}
			mu.Lock()
			times[i]++
			mu.Unlock()
			switch j.Kind {
			case "failed":
				return nil, client.RetryAfter(time.Hour, errors.New("no paper"))
			case "dead":
				return nil, client.Bury(errors.New("no such user"))
			case "discard":
				return nil, client.Discard(errors.New("not needed"))
			}
			return nil, nil
		}}
		one, two := work(t, api, opt), work(t, api, opt)
		eventually(t, "all jobs have ended", func() bool {
			s, err := c.Stats(t.Context(), "q")
			must(t, err)
			return s.Ready+s.Running == 0
		})
		one.stop()
		two.stop()
		must(t, <-one.ended)
		must(t, <-two.ended)
		mu.Lock()
		defer mu.Unlock()
		for i := range n {
			if times[i] != 1 {
				t.Errorf("job %d was done %d times", i, times[i])
			}
		}
		for i, want := range map[int]string{10: "delayed no paper", 20: "dead no such user"} {
			j, err := c.Job(t.Context(), "q", ids[i].ID)
			must(t, err)
			if got := fmt.Sprint(j.State, " ", j.Error); got != want {
				t.Errorf("job %d: got %q, want %q", i, got, want)
			}
		}
		if _, err := c.Job(t.Context(), "q", ids[30].ID); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("what was discarded: %v", err)
		}
	})
}

func TestClaimsAndTheAPI(t *testing.T) {
	eachAPI(t, func(t *testing.T, _ *dbtest.DB, api http.Handler) {
		c := serve(t, api, client.Options{})
		needQueue(t, c)
		ctx := t.Context()
		_, err := c.Enqueue(ctx, client.Job{Kind: "x", Queue: "q", Binary: []byte{0, 255}, Priority: "low"})
		must(t, err)
		claim := func() wire.Claim {
			t.Helper()
			var jobs []wire.Claim
			eventually(t, "there is a job", func() bool {
				jobs, err = c.Claim(ctx, "q", client.ClaimOptions{Max: 10, Lease: longWait, Wait: 10 * time.Second})
				must(t, err)
				return len(jobs) > 0
			})
			return jobs[0]
		}
		j := claim()
		if j.Kind != "x" || string(j.Binary) != "\x00\xff" || j.Priority != "low" || j.Attempt != 1 ||
			j.MaxAttempts == 0 || j.Enqueued.IsZero() || j.ID == "" {
			t.Errorf("got %+v", j)
		}
		s, err := c.Heartbeat(ctx, longWait, j.Token)
		if err != nil || s.Done != 1 || len(s.Lost) != 0 {
			t.Errorf("heartbeat: %+v, %v", s, err)
		}
		_, err = c.Release(ctx, j.Token)
		must(t, err)
		if j = claim(); j.Attempt != 1 {
			t.Errorf("what was released is at attempt %d", j.Attempt)
		}
		s, err = c.Complete(ctx, client.Done{Token: j.Token})
		if err != nil || s.Done != 1 {
			t.Errorf("complete: %+v, %v", s, err)
		}
		if s, err := c.Complete(ctx, client.Done{Token: j.Token}); err != nil || s.Done != 1 { // as if the answer had been lost
			t.Errorf("completing it again: %+v, %v", s, err)
		}
		if _, err := c.Fail(ctx, wire.FailedClaim{Token: j.Token, Error: "no"}); !errors.Is(err, client.ErrConflict) {
			t.Errorf("failing what is done: %v", err)
		}
		if _, err := c.Job(ctx, "q", j.ID); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("a job that is done: %v", err)
		}
	})
}
