package queuetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// Jobs returns all jobs of a queue, including dead ones, in the order of their ids. Jobs that
// are done no longer exist. A queue that does not exist has none.
func Jobs(t testing.TB, c *queue.Client, queueName string) (all []admin.Job) {
	t.Helper()
	seen := map[int64]bool{}
	// In the order in which jobs move, so that one that moves meanwhile is found.
	for _, state := range []admin.State{admin.StateReady, admin.StateDelayed, admin.StateRunning, admin.StateDead} {
		for after, more := int64(0), true; more; more = after != 0 {
			found, last, err := adminOf(t, c).Jobs(t.Context(), admin.Filter{Queue: queueName, State: state, After: after, Limit: 1000})
			if errors.Is(err, queue.ErrNotFound) {
				return nil
			} else if err != nil {
				t.Fatalf("queuetest: %v", err)
			}
			for _, i := range found {
				if !seen[i.ID] {
					all = append(all, i)
				}
				seen[i.ID] = true
			}
			after = last
		}
	}
	slices.SortFunc(all, func(a, b admin.Job) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Enqueued fails the test unless exactly one job of the queue matches an example, and returns
// that job. It matches if it has the same kind, payload, key, priority, timeout and so on. Zero
// fields of the example match anything, and the job may be in any state. JSON is compared by
// its meaning. A delay is compared with the time between the job's id and its due time, to the
// second.
func Enqueued(t testing.TB, c *queue.Client, like queue.Job) admin.Job {
	t.Helper()
	all := Jobs(t, c, queueOf(t, c, like))
	found := matching(t, all, like)
	if len(found) != 1 {
		t.Fatalf("queuetest: %d jobs are like %s, want 1%s", len(found), describe(like), others(t, c, all))
	}
	return found[0]
}

// NotEnqueued fails the test if a job of the queue matches an example: see [Enqueued].
func NotEnqueued(t testing.TB, c *queue.Client, like queue.Job) {
	t.Helper()
	all := Jobs(t, c, queueOf(t, c, like))
	if found := matching(t, all, like); len(found) > 0 {
		t.Fatalf("queuetest: %d jobs are like %s, want none%s", len(found), describe(like), others(t, c, all))
	}
}

func adminOf(t testing.TB, c *queue.Client) *admin.Client {
	t.Helper()
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	return a
}

// queueOf returns the queue of a job: the one it names, or that of its route.
func queueOf(t testing.TB, c *queue.Client, j queue.Job) string {
	t.Helper()
	if j.Queue != "" {
		return j.Queue
	}
	name, err := adminOf(t, c).Route(t.Context(), j.Kind)
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	return name
}

func matching(t testing.TB, all []admin.Job, like queue.Job) (found []admin.Job) {
	t.Helper()
	if !like.Binary && len(like.Payload) > 0 && !json.Valid(like.Payload) {
		t.Fatalf("queuetest: the payload of the example is not JSON: %q", like.Payload)
	}
	for i := range all {
		if isLike(&all[i], &like) {
			found = append(found, all[i])
		}
	}
	return found
}

func isLike(i *admin.Job, like *queue.Job) bool {
	same := func(got, want any) bool { return reflect.ValueOf(want).IsZero() || got == want }
	switch {
	case !same(i.Kind, like.Kind), !same(i.Key, like.Key), !same(i.Priority, like.Priority), !same(i.MaxAttempts, like.MaxAttempts),
		!same(i.Timeout, like.Timeout), !same(i.Trace, like.Trace), !same(i.Unique, like.Unique), !same(i.Tenant, like.Tenant),
		!same(max(1, i.Cost), like.Cost),
		!same(i.UniqueUntil, strings.TrimPrefix(like.UniqueUntil, queue.UntilEnd)),
		!same(i.Binary, like.Binary):
		return false
	case like.Delay > 0 && (i.State != admin.StateDelayed || (i.At.Sub(i.Enqueued)-like.Delay).Abs() > time.Second):
		return false
	case !like.RunAt.IsZero() && (i.State != admin.StateDelayed || i.At.Sub(like.RunAt).Abs() > time.Millisecond): // SQLite's precision
		return false
	}
	return len(like.Payload) == 0 || samePayload(i.Payload, like.Payload, like.Binary)
}

func samePayload(got, want []byte, binary bool) bool {
	if binary || len(got) == 0 {
		return bytes.Equal(got, want)
	}
	var a, b any
	return decode(got, &a) == nil && decode(want, &b) == nil && reflect.DeepEqual(a, b)
}

// decode keeps numbers as written: they may be too long for a float.
func decode(text []byte, to *any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(to)
}

// others describes the jobs that exist instead.
func others(t testing.TB, c *queue.Client, all []admin.Job) string {
	t.Helper()
	if len(all) == 0 {
		queues, err := adminOf(t, c).Queues(t.Context(), "", 20)
		if err != nil {
			t.Fatalf("queuetest: %v", err)
		}
		names := make([]string, len(queues))
		for i, q := range queues {
			names[i] = fmt.Sprintf("%q", q.Name)
		}
		return "; the queue is empty; queues: " + cmp.Or(strings.Join(names, ", "), "none")
	}
	const most = 20
	text := "; the queue has"
	for _, i := range all[:min(most, len(all))] {
		text += fmt.Sprintf("\n\t%-7s %d %s", i.State, i.ID, describe(made(&i)))
		if i.Error != "" {
			text += ", failed: " + i.Error
		}
	}
	if len(all) > most {
		text += fmt.Sprintf("\n\tand %d more", len(all)-most)
	}
	return text
}

// made returns a job as it was enqueued.
func made(i *admin.Job) queue.Job {
	return queue.Job{
		Queue: i.Queue, Kind: i.Kind, Payload: i.Payload, Binary: i.Binary, Key: i.Key, Priority: i.Priority, MaxAttempts: i.MaxAttempts,
		Timeout: i.Timeout, Trace: i.Trace, Tenant: i.Tenant, Cost: i.Cost,
	}
}

// describe lists the fields that are set in a job.
func describe(j queue.Job) string {
	text := fmt.Sprintf("kind %q", j.Kind)
	for _, f := range []struct {
		name  string
		value any
	}{
		{"queue", j.Queue},
		{"key", j.Key},
		{"priority", j.Priority},
		{"delay", j.Delay},
		{"run_at", j.RunAt},
		{"max_attempts", j.MaxAttempts},
		{"timeout", j.Timeout},
		{"trace", j.Trace},
		{"tenant", j.Tenant},
		{"cost", j.Cost},
	} {
		if !reflect.ValueOf(f.value).IsZero() {
			text += fmt.Sprintf(" %s %v", f.name, f.value)
		}
	}
	switch {
	case j.Binary:
		text += fmt.Sprintf(" payload %q", j.Payload)
	case len(j.Payload) > 0:
		text += " payload " + string(j.Payload)
	}
	return text
}
