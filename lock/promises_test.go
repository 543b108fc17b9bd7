package lock

import (
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// The figures of docs/lock.md are those of the code. Those that it shares with pages about schedules and queues are in the tests
// of that name there.
func TestFiguresOfThePage(t *testing.T) {
	polls := func(most bool) (wait time.Duration) {
		c := contender{l: &Locker{}}
		for range 20 {
			held := &HeldError{Fence: 1}
			if c.pollAfter(held); !most {
				break
			}
		}
		return c.poll
	}
	dbtest.Promises(t, "../docs/lock.md", map[string]bool{
		"one that does not respond within 50 ms of its turn is passed over":   leftFor == 50*time.Millisecond,
		"waiters poll, every 10 ms to 250 ms":                                 polls(false) == 10*time.Millisecond && polls(true) == 250*time.Millisecond,
		"A leader whose last answer is 600 ms old considers its session lost": trust == 600*time.Millisecond,
		"A standby waits for 750 ms after it got the session lock":            usurpAfter == 750*time.Millisecond,
		"a standby leads within a second":                                     usurpAfter+2*campaignEvery < time.Second,
	})
}
