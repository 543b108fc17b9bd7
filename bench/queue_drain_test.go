package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
)

// drained returns a peer with as many connections as the floors have.
func drained(t *testing.T, b *bed, batch int) *ours {
	t.Helper()
	return newOurs(t, b, fmt.Sprintf("dbcron, batches of %d", batch), queue.WorkerOptions{Batch: batch, Connections: rawConns})
}

// TestQueueDrain prints how many jobs a second one worker does with a handler that does nothing, and
// the same for the floors. To see where Go's time goes:
//
//	-run TestQueueDrain/postgres -compare=false -cpuprofile cpu.out
func TestQueueDrain(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		rawQueue(t, b)
		for _, batch := range []int{100, 1000} {
			t.Run(fmt.Sprint(batch), func(t *testing.T) {
				p := drained(t, b, batch)
				figures := []figure{{p.String(), drain(t, p, *jobs)}}
				if batch == 100 {
					p := newOurs(t, b, "dbcron, as it comes", queue.WorkerOptions{})
					figures = append(figures, figure{p.String(), drain(t, p, *jobs)})
				}
				if *compare {
					figures = append(figures,
						figure{"raw, leased blocks", leaseFloor(t, b, *jobs, batch)},
						figure{"raw, SKIP LOCKED", skipFloor(t, b, *jobs, batch)})
				}
				if *compare && b.Dialect.Name == "postgres" {
					figures = append(figures, figure{"raw, advisory locks", advisoryFloor(t, b, *jobs, batch)})
				}
				report(t, b, fmt.Sprintf("drain of %d", *jobs), figures)
			})
		}
	})
}

// TestQueueBacklog prints how many jobs a second are done with few ready jobs and with very many;
// the latter for the span.
func TestQueueBacklog(t *testing.T) {
	const few, rounds = 10_000, 5
	queues(t, func(t *testing.T, b *bed) {
		p := newOurs(t, b, "dbcron", queue.WorkerOptions{})
		t.Run(p.String(), func(t *testing.T) {
			small := 0.0
			n := min(few, *backlog)
			for range rounds {
				small += drain(t, p, n) / rounds
			}
			large := drainFor(t, p, *backlog, *span)
			t.Logf("%-8s %-8s %8.0f jobs/s of %d, %8.0f jobs/s of %d: ratio %.2f",
				b.Dialect.Name, p, small, n, large, *backlog, large/small)
		})
	})
}

// TestQueueEarly prints how many jobs a second a worker does that was started on an empty queue. Its
// plans were made for an empty table, and the database's statistics do not know the many jobs that
// came later. For comparison it prints a worker that was started after them.
func TestQueueEarly(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		p := newOurs(t, b, "dbcron", queue.WorkerOptions{})
		late := drainFor(t, p, *backlog, *span)

		const few = 20_000
		first, rest := newStarts(few), newStarts(*backlog)
		stop := p.work(t, func(ctx context.Context, id int64) {
			if first.count.Load() < few {
				first.note(ctx, id)
				return
			}
			rest.note(ctx, id)
		})
		for n := 0; n < few; n += 100 { // in small pieces, to do everything often
			if err := p.many(t.Context(), n, 100); err != nil {
				t.Fatal(err)
			}
		}
		finish(t, p, first, few)
		if err := adminOf(p.c).Pause(t.Context(), "default", ""); err != nil {
			t.Fatal(err)
		}
		b.Analyze(t, "job") // while it is empty
		pause(t, 5*time.Second)
		for n := 0; n < *backlog; n += 10_000 {
			if err := p.many(t.Context(), n, 10_000); err != nil {
				t.Fatal(err)
			}
		}
		if n := rest.count.Load(); n > 0 {
			t.Fatalf("%d jobs were started in a paused queue", n)
		}
		if err := adminOf(p.c).Resume(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		for rest.count.Load() == 0 {
			pause(t, time.Millisecond)
		}
		pause(t, *span)
		stop()
		done := len(rest.at)
		early := perSecond(int64(done), rest.at[done-1].Sub(rest.at[0]))
		t.Logf("%-8s %8.0f jobs/s of %d that came after the worker, %8.0f that came before: ratio %.2f",
			b.Dialect.Name, early, *backlog, late, early/late)
		p.wipe(t)
	})
}

// drainFor lets a worker do some of n jobs for a time, and checks that the others are left.
func drainFor(t *testing.T, p peer, n int, part time.Duration) float64 {
	t.Helper()
	load(t, p, n)
	seen := newStarts(n)
	stop := p.work(t, seen.note)
	for over := time.Now().Add(part); seen.count.Load() < int64(n) && time.Now().Before(over); {
		pause(t, 5*time.Millisecond)
	}
	stop()
	done := len(seen.at)
	if left := p.left(t); left+int64(done) != int64(n) || done == 0 {
		t.Fatalf("%v: %d jobs were started, and %d are left, of %d", p, done, left, n)
	}
	p.wipe(t)
	return perSecond(int64(done), seen.at[done-1].Sub(seen.at[0]))
}

// TestQueueOrder prints how many places jobs without keys start from their position in the order of
// enqueueing.
func TestQueueOrder(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		for _, batch := range []int{10, 100, 1000} {
			p := drained(t, b, batch)
			load(t, p, *jobs)
			seen := newStarts(*jobs)
			stop := p.work(t, seen.note)
			finish(t, p, seen, *jobs)
			stop()
			seen.check(t, p, *jobs)
			off := skews(seen.ids)
			t.Logf("%-8s %-24s %d jobs, out of order by p50 %d, p99 %d, most %d places", b.Dialect.Name, p, len(off),
				off[len(off)/2], off[len(off)*99/100], off[len(off)-1])
		}
	})
}

// skews returns the distance of each id from its place in sorted order, the smallest first.
func skews(ids []int64) []int {
	places := make([]int, len(ids)) // in the order of the ids
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(ids[a], ids[b]) })
	off := make([]int, len(ids))
	for rank, place := range places {
		off[rank] = max(rank-place, place-rank)
	}
	slices.Sort(off)
	return off
}
