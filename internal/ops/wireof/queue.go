package wireof

import (
	"strconv"
	"time"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// Queue returns a queue's settings.
func Queue(q *admin.Queue) wire.Queue {
	w := wire.Queue{Name: q.Name, State: q.State, Reason: q.Reason, Blocks: q.Blocks}
	setting.Show(admin.Settings(), q, "", &w)
	if q.Wrong != "" { // its jobs wait, as if somebody had paused it
		w.Reason = "its row in the database is wrong: " + q.Wrong
		if w.State != "deleted" {
			w.State = "paused"
		}
	}
	return w
}

// QueueCounts returns the numbers of a queue's jobs.
func QueueCounts(c *admin.Counts) wire.QueueCounts {
	return wire.QueueCounts{Ready: c.Ready, Delayed: c.Delayed, Running: c.Running, Dead: c.Dead, Done: c.Done, CountedTo: c.Limit}
}

// JobCount returns the number of a queue's jobs of one kind and state.
func JobCount(s *admin.Stat) wire.JobCount {
	return wire.JobCount{Queue: s.Queue, State: string(s.State), Kind: s.Kind, Count: s.Count, More: s.More, Oldest: wire.At(s.Oldest)}
}

// Finished returns what workers have done.
func Finished(f *admin.Finished) wire.Finished {
	return wire.Finished{
		Queue: f.Queue, Kind: f.Kind, Done: f.Done, Tried: f.Failed, Dead: f.Dead, Wait: Seconds(f.Wait), Took: Seconds(f.Took),
	}
}

// Seconds returns a duration that was measured, in seconds, rounded to microseconds.
func Seconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }

// Block returns a block of a queue.
func Block(b *admin.Block) wire.Block {
	return wire.Block{
		Block: b.Number, Generation: b.Generation, State: BlockState(b), Worker: b.Worker, Since: wire.At(b.Since),
		Fence: strconv.FormatInt(b.Fence, 10), Crashes: b.Crashes,
	}
}

// BlockState says who has a block.
func BlockState(b *admin.Block) string {
	switch {
	case !b.Leased:
		return "free"
	case !b.Live:
		return "lost"
	}
	return "held"
}
