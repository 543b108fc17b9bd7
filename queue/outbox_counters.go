package queue

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A worker counts its work in memory, and adds the counts to a table once a second: one row for
// each minute, queue and kind.

const countEvery = time.Second

// purgeCounts removes counts that are too old.
func (c *Client) purgeCounts(ctx context.Context) error {
	_, err := c.db.Exec(ctx, store.PurgeCounts, sqlrun.Args{"since": -store.LongestCount.Microseconds()})
	return err
}

// A countKey identifies a counter.
type countKey struct {
	minute int64 // minutes since 1970
	queue  int
	kind   string
}

// A count has the totals of attempts that have ended.
type count struct {
	done, failed, dead int64
	waited, ran        int64 // total in µs
	late               int64 // jobs that were found late
}

// A tally has the counts that are not in the table yet.
type tally struct {
	*core
	turn   turn
	counts map[countKey]*count
	latest struct { // the counter used last
		key countKey
		c   *count
	}
}

func (c *count) add(o *count) {
	c.done, c.failed, c.dead = c.done+o.done, c.failed+o.failed, c.dead+o.dead
	c.waited, c.ran, c.late = c.waited+o.waited, c.ran+o.ran, c.late+o.late
}

// counter returns the counter for a key, which is usually the one used last. mu is held.
func (t *tally) counter(key countKey) *count {
	if t.latest.c != nil && t.latest.key == key {
		return t.latest.c
	}
	c := t.counts[key]
	if c == nil {
		c = &count{}
		t.counts[key] = c
	}
	t.latest.key, t.latest.c = key, c
	return c
}

// count counts an attempt whose outcome is committed, and logs it if the job is done. at is the present,
// for a job without a recorded end. mu is held.
func (t *tally) count(d *Delivery, what verdict, at reading) {
	if d.began == 0 || what == snoozed || what == handed {
		return
	}
	began, ran := at.skew+micros(d.began), cmp.Or(d.stopped, at.at).Sub(d.began).Microseconds()
	waited := max(0, began-max(d.ID>>store.IdBits+store.EpochMicro, d.state.RunAt))
	c := t.counter(countKey{(began + ran) / time.Minute.Microseconds(), d.b.q.id, d.Kind})
	c.waited, c.ran = c.waited+waited, c.ran+ran
	switch what {
	case buried:
		c.dead++
	case done, discard:
		c.done++
		t.logDone(d, waited, ran)
	default:
		c.failed++
	}
}

// countLate counts a job that was found late, at an instant. mu is held.
func (t *tally) countLate(d *Delivery, at reading) {
	t.counter(countKey{(at.skew + micros(at.at)) / time.Minute.Microseconds(), d.b.q.id, d.Kind}).late++
}

func (t *tally) logDone(d *Delivery, waited, ran int64) {
	level, ok := t.opt.LogDone[d.Queue]
	if !ok {
		level = slog.LevelDebug
	}
	if ctx := context.Background(); t.log.Enabled(ctx, level) {
		t.log.Log(ctx, level, "job done", "queue", d.Queue, "kind", d.Kind, "id", d.ID, "attempt", d.Attempt, "discarded", d.discarded(),
			"waited", time.Duration(waited)*time.Microsecond, "took", time.Duration(ran)*time.Microsecond)
	}
}

// addUp adds the counts to the table every second.
func (t *tally) addUp(ctx context.Context) {
	trouble := trouble.New(t.log, "counting finished jobs")
	for range pace.Ticks(ctx, countEvery) {
		if err := t.addCounts(ctx); ctx.Err() == nil {
			trouble.Note(err)
		}
	}
}

func (t *tally) addCounts(ctx context.Context) error {
	end, err := t.turn.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	t.mu.Lock()
	counts := t.counts
	t.counts, t.latest.c = map[countKey]*count{}, nil
	t.mu.Unlock()
	err = t.c.addCounts(ctx, counts)
	if err != nil {
		t.keepCounts(counts)
	}
	return err
}

// addCounts adds counts to the table, and removes from counts those that it has added.
func (c *Client) addCounts(ctx context.Context, counts map[countKey]*count) error {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b countKey) int {
		return cmp.Or(cmp.Compare(a.minute, b.minute), cmp.Compare(a.queue, b.queue), cmp.Compare(a.kind, b.kind))
	})
	for part := range slices.Chunk(keys, store.Chunk) {
		rows := make([]sqlrun.Args, len(part))
		for i, key := range part {
			n := counts[key]
			rows[i] = sqlrun.Args{
				"since_us": key.minute * time.Minute.Microseconds(), "queue": key.queue, "name": key.kind,
				"done": n.done, "failed": n.failed, "dead": n.dead, "waited": n.waited, "ran": n.ran, "late": n.late,
			}
		}
		if _, err := c.dbOf(ctx).Exec(ctx, store.AddCounts, sqlrun.Args{"rows": rows}); err != nil {
			return err
		}
		for _, key := range part {
			delete(counts, key)
		}
	}
	return nil
}

// addLast does so when the worker ends.
func (t *tally) addLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := t.addCounts(ctx); err != nil {
		t.log.Warn("the last finished jobs could not be counted", "err", err)
	}
}

// keepCounts keeps counts that could not be added for the next time, unless there are too many.
func (t *tally) keepCounts(counts map[countKey]*count) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, c := range counts {
		if have := t.counts[key]; have != nil {
			have.add(c)
		} else if len(t.counts) < 10*store.Chunk {
			t.counts[key] = c
		}
	}
}
