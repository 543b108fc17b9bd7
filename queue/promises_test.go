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

// The figures of the pages about queues are those of the code. Those about stops are in the test of this name of the package scheduler.
func TestFiguresOfThePage(t *testing.T) {
	set := map[string]string{}
	for _, s := range store.Table {
		set[s.Name] = s.Default()
	}
	delay := func(failures int, random float64) time.Duration {
		return pace.Delay(10*time.Second, time.Hour, failures, random).Round(time.Millisecond)
	}
	least, most := 0., math.Nextafter(1, 0)
	retries := set["retry_delay"] == "10s" && set["retry_max_delay"] == "1h" && delay(1, least) == 5*time.Second && delay(1, most) == 10*time.Second &&
		delay(3, least) == 20*time.Second && delay(3, most) == 40*time.Second && delay(99, least) == 30*time.Minute && delay(99, most) == time.Hour
	for page, sentences := range map[string]map[string]bool{
		"promises": {
			"A job that commits within two seconds (`queue.Window`)":                                      Window == 2*time.Second && block.Window == Window,
			"ends its process within five seconds is dead after `max_crashes` processes (at least three)": provenAfter == 5*time.Second && set["max_crashes"] == "3",
		},
		"queue": {
			"shorter than two seconds** (`queue.Window`)":                       Window == 2*time.Second,
			"with growing pauses of up to a second":                             pauseAfter(1000) <= time.Second && pauseAfter(1000) >= time.Second/2,
			"follow a change within two seconds, `dbcron_enqueue` at once":      store.SettingsAge == 2*time.Second,
			"at once if it holds nothing else, and otherwise after two seconds": kindTurn == 2*time.Second,
			"`ReadAhead` bytes of waiting payloads, 64 MiB by default":          defaultReadAhead == 64<<20,
		},
		"queue-retries": {
			"By default after 5–10 s, 10–20 s, 20–40 s and so on, up to 30–60 min.":      retries,
			"After ten failed attempts the job is *dead*":                                set["max_attempts"] == "10",
			"keeps dead jobs for 90 days":                                                set["keep_dead"] == "90d",
			"Ten seconds after its timeout or `Stall`, a handler":                        returnGrace == 10*time.Second,
			"ends eight seconds after its last renewal":                                  DefaultLease == 8*time.Second,
			"no more of a kind at a time than the worker has slots, and at most 32":      doubtful == 32,
			"A job that runs for five seconds leaves quarantine.":                        provenAfter == 5*time.Second,
			"it is dead after four times `max_crashes` deaths":                           maxCrashes == 4,
			"waits five seconds for that. After 16 times `max_crashes` lost leases (48)": appealFor == 5*time.Second && maxLosses == 16 && set["max_crashes"] == "3",
			"tries this one again after half a second, later every 15 seconds":           firstRefused == 500*time.Millisecond && lastRefused == 15*time.Second,
			"With 1,000 refused jobs in a block":                                         block.MaxRefused == 1000,
			"`dbcron_job_refused`, which workers update once a minute":                   tellEvery == time.Minute,
			"`queue move` fails after a minute":                                          handOverTime == time.Minute,
		},
		"queue-limits": {
			"Workers take tokens from the rate a tenth of a second ahead": store.DrawFor == 100*time.Millisecond,
			"A cost is 1 to 1000": store.MaxCost == 1000,
		},
		"queue-order": {
			"at most a quarter of a second":                                            patience == 250*time.Millisecond,
			"In a queue with jobs the change takes effect after four seconds":          store.ResizeAfter == 4*time.Second,
			"reads it every two seconds and calculates the time in between, to 125 ms": clockAge == 2*time.Second && maxSkew == 125*time.Millisecond,
		},
		"queue-results": {
			"about once a minute, a thousand in a transaction":                                sweepEvery == time.Minute && store.Chunk == 1000,
			"within a tenth of the time waited so far, not before 20 ms, and within a second": lookShare == 10 && firstLook == 20*time.Millisecond && longestLook == time.Second,
			"`State` is any bytes, up to 1 MiB":                                               longestState == 1<<20,
		},
		"queue-bulk": {
			"until ten seconds after it died":                              moveLease == 10*time.Second,
			"It fails if a worker has not left its blocks within a minute": handOverTime == time.Minute,
			"`queue resize` takes effect after four seconds":               store.ResizeAfter == 4*time.Second,
		},
		"queue-internals": {
			"100, and up to 1,000 while it starts that many within a tenth of a second": leastBatch == 100 && maxBatch == 1000 && readFor == 100*time.Millisecond,
			"It lasts eight seconds":                                                    DefaultLease == 8*time.Second,
			"the worker renews it eight times in that period":                           renewals == 8,
			"does not take for a second and a half":                                     vacantAfter == 1500*time.Millisecond,
			"no connection was free for ten seconds":                                    starvedAfter == 10*time.Second,
			"with a drift of 0.5 ms per second":                                         maxDrift == int64(time.Second/(500*time.Microsecond)),
			"While they are over 50 ms apart it asks again at once, up to four times.":  clockWidth == 50*time.Millisecond && clockTries == 4,
			"never more than 125 ms behind":                                             maxSkew == 125*time.Millisecond,
			"as idle in `dbcron_node` after a tenth of a second":                        waitsAfter == 100*time.Millisecond,
			"`poll_min` (2 ms) after the last job, slowing down to `poll_max` (250 ms)": set["poll_min"] == "2ms" && set["poll_max"] == "250ms",
			"once a second, or 1.5 ms for each block if that is more":                   waitingLook == time.Second && lookCostHeard == 1500*time.Microsecond,
			"(at most 30 seconds) | four to six statements":                             seldomRound == 30*time.Second,
			"or 0.125 ms for each block":                                                lookCost == 125*time.Microsecond,
			"For five minutes they then look as often as without doorbells.":            doubtsBells == 5*time.Minute,
		},
	} {
		dbtest.Promises(t, "../docs/"+page+".md", sentences)
	}
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
