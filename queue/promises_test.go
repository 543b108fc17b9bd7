package queue

import (
	"math"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// The figures of docs/queue.md are those of the code. Those about stops are in the test of this name of the package scheduler.
func TestFiguresOfThePage(t *testing.T) {
	set := map[string]string{}
	for _, s := range store.Table {
		set[s.Name] = s.Default()
	}
	retries := set["retry_delay"] == "10s" && set["retry_max_delay"] == "1h" && pace.Delay(10*time.Second, time.Hour, 3, math.Nextafter(1, 0)).Round(time.Millisecond) == 40*time.Second
	dbtest.Promises(t, "../docs/queue.md", map[string]bool{
		"committed within two seconds after its id was drawn (`queue.Window`)":                                       Window == 2*time.Second && block.Window == Window,
		"A job that ends its process within five seconds is dead after `max_crashes` processes (three at the least)": provenAfter == 5*time.Second && set["max_crashes"] == "3",
		"no handler has ended and no connection was free for ten seconds":                                            starvedAfter == 10*time.Second,
		"growing pauses of up to a second":                                                                           pauseAfter(1000) <= time.Second && pauseAfter(1000) >= time.Second/2,
		"follow a change within two seconds, and `dbcron_enqueue` at once":                                           store.SettingsAge == 2*time.Second,
		"begin nothing until it ends, or until ten seconds after it died":                                            moveLease == 10*time.Second,
		"gives up if a worker has not left its blocks within a minute":                                               handOverTime == time.Minute,
		"workers draw a tenth of a second ahead":                                                                     store.DrawFor == 100*time.Millisecond,
		"`Cost` of a job, from 1 to 1000":                                                                            store.MaxCost == 1000,
		"the job is retried after 10 s, 20 s, 40 s, … up to an hour":                                                 retries,
		"After ten attempts it becomes a dead letter":                                                                set["max_attempts"] == "10",
		"One that has not returned ten seconds after its job's timeout":                                              returnGrace == 10*time.Second,
		"at once if nothing else is left in it, and otherwise after two seconds":                                     kindTurn == 2*time.Second,
		"100 by default, and up to 1000 while it is so fast that it begins them within a tenth of a second":          leastBatch == 100 && maxBatch == 1000 && readFor == 100*time.Millisecond,
		"of their payloads, 64 MiB by default":                                                                       defaultReadAhead == 64<<20,
		"about once a minute and a thousand in a transaction":                                                        sweepEvery == time.Minute && store.Chunk == 1000,
		"within a tenth of the time waited so far, not before 20 ms, and within a second":                            lookShare == 10 && firstLook == 20*time.Millisecond && longestLook == time.Second,
		"`State` is any bytes, up to 1 MiB":                                                                          longestState == 1<<20,
		"takes at most a quarter of a second":                                                                        patience == 250*time.Millisecond,
		"In a queue with jobs the change takes effect after four seconds":                                            store.ResizeAfter == 4*time.Second,
		"A process reads it every two seconds while it works":                                                        clockAge == 2*time.Second,
		"allowing for a drift of 0.5 ms per second":                                                                  maxDrift == int64(time.Second/(500*time.Microsecond)),
		"While the bounds are more than 50 ms apart it asks again at once, up to four times":                         clockWidth == 50*time.Millisecond && clockTries == 4,
		"never more than 125 ms behind the database's clock":                                                         maxSkew == 125*time.Millisecond,
		"eight seconds after its last renewal by default (`Lease`)":                                                  DefaultLease == 8*time.Second,
		"A worker renews its lease eight times in that period.":                                                      renewals == 8,
		"A free block that nobody takes for a second and a half":                                                     vacantAfter == 1500*time.Millisecond,
		"than the worker has slots, and at most 32":                                                                  doubtful == 32,
		"It becomes a dead letter after four times `max_crashes` deaths":                                             maxCrashes == 4,
		"waits for five seconds for that":                                                                            appealFor == 5*time.Second,
		"16 times `max_crashes` times (48 by default)":                                                               maxLosses == 16,
		"It retries after half a second, and later every 15 seconds":                                                 firstRefused == 500*time.Millisecond && lastRefused == 15*time.Second,
		"If 1000 jobs of a block are refused":                                                                        block.MaxRefused == 1000,
		"which workers update once a minute":                                                                         tellEvery == time.Minute,
		"A worker that has been idle for a tenth of a second says so":                                                waitsAfter == 100*time.Millisecond,
		"`poll_min` (2 ms) after the last job, slowing down to `poll_max` (250 ms)":                                  set["poll_min"] == "2ms" && set["poll_max"] == "250ms",
		"once a second, or every 1.5 ms for each block if that is more, a look":                                      waitingLook == time.Second && lookCostHeard == 1500*time.Microsecond,
		"30 seconds at most), four to six statements":                                                                seldomRound == 30*time.Second,
		"or every 0.125 ms for each block":                                                                           lookCost == 125*time.Microsecond,
		"For five minutes they then look as often as without.":                                                       doubtsBells == 5*time.Minute,
	})
}

// Move waits for jobs of a key that are committed late, so that none of them stays behind a later one that goes.
func TestMoveWaitsForLateCommits(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		elsewhere(t, c, "to", 1)
		enqueueMany(t, c, []Job{{Kind: "x", Key: "a"}})
		began := instant.Now()
		moveAll(t, c, MoveOptions{}, Moved{Jobs: 1})
		if took := since(began); took < Window {
			t.Errorf("it moved a job with a key after %v, when one before it may not be committed yet", took)
		}
	})
}
