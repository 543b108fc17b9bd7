package queue

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A clock is this process's view of the database's clock: readings taken from time to time, carried
// forward by the monotonic clock, which nobody can set.
//
// Each reading bounds the database's clock: it was read after the request was sent and before the
// answer came. The clock intersects these bounds, widened by how far two clocks may drift apart
// meanwhile. So a slow answer does no harm, and a quick one helps for long. Bounds that do not meet
// show that somebody set the clock: a step.
type clock struct {
	mu     sync.Mutex
	ahead  bounds          // offset, in µs, of the database's time since 1970 from the instant
	at     instant.Instant // instant of the last reading; 0: never
	asking instant.Instant // instant at which the reading under way began; 0: none is
	last   int64           // the tick of the newest id

	steps int             // number of steps seen
	leapt int64           // by how many µs the clock was recently set forward
	until instant.Instant // until then other processes may not have noticed
}

// bounds are the lowest and highest possible value of a number of µs.
type bounds struct{ low, high int64 }

func (b bounds) width() time.Duration { return time.Duration(b.high-b.low) * time.Microsecond }

const (
	// clockAge is how long a reading is carried forward before the database's clock is read again.
	clockAge = 2 * time.Second

	// clockWidth is how closely the bounds should lie together. While they do not, the
	// clock is read again at once, up to clockTries times.
	clockWidth = 50 * time.Millisecond
	clockTries = 4

	// clockGrain is the resolution of the coarsest engine's clock.
	clockGrain = time.Millisecond

	// maxDrift bounds the drift between the clocks of two hosts: one part in this many.
	maxDrift = 2000

	// maxSkew is how far behind the database's clock an id may be, and how far a clock
	// must be set before that counts as a step.
	maxSkew = 125 * time.Millisecond
)

// sync reads the database's clock, unless that was done a moment ago. While one caller reads it,
// others continue with what is known.
func (c *clock) sync(ctx context.Context, db *sqlrun.Session, at instant.Instant) error {
	if !c.stale(at) {
		return nil
	}
	defer c.asked()
	err := c.ask(ctx, db)
	if errors.Is(err, driver.ErrBadConn) { // a connection that died in the pool
		err = c.read(ctx, db)
	}
	return err
}

// stale reports whether the caller has to read the clock.
func (c *clock) stale(at instant.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := at.Sub(c.at)
	if c.at != 0 && (age < clockAge || age < 2*clockAge && c.asking != 0) {
		return false
	}
	c.asking = at
	return true
}

func (c *clock) asked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = 0
}

// ask reads the clock on one connection, so that waiting for a connection is not part of the round
// trip. It repeats until the bounds are close or further readings do not help.
func (c *clock) ask(ctx context.Context, db *sqlrun.Session) error {
	held, release, err := db.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	for range clockTries {
		if err := c.read(ctx, held); err != nil {
			return err
		}
		c.mu.Lock()
		width := c.ahead.width()
		c.mu.Unlock()
		if width <= clockWidth {
			break
		}
	}
	return nil
}

// read reads the clock once.
func (c *clock) read(ctx context.Context, db *sqlrun.Session) error {
	before := instant.Now()
	var us int64
	if err := db.Get(ctx, store.ReadClock, nil, &us); err != nil {
		return err
	}
	c.note(before, instant.Now(), us)
	return nil
}

// note records a reading us of the database's clock, taken between before and after.
func (c *clock) note(before, after instant.Instant, us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	off := clockGrain.Microseconds() + drift(before, after)
	fresh := bounds{us - micros(after) - off, us - micros(before) + off}
	if c.at == 0 {
		c.ahead, c.at = fresh, after
		return
	}
	known := c.known(after)
	both := bounds{max(known.low, fresh.low), min(known.high, fresh.high)}
	if both.low <= both.high {
		c.ahead, c.at = both, after
		return
	}
	if by := max(fresh.low-known.high, known.low-fresh.high); by > maxSkew.Microseconds() {
		c.steps++
	}
	if fresh.low > known.high {
		if after >= c.until {
			c.leapt = 0
		}
		c.leapt += fresh.high - known.low
		c.until = after.Add(2*clockAge + Window)
	}
	c.ahead, c.at = fresh, after
}

// known returns the bounds at an instant, widened by possible drift. mu is held.
func (c *clock) known(at instant.Instant) bounds {
	off := drift(c.at, at)
	return bounds{c.ahead.low - off, c.ahead.high + off}
}

// drift returns by how many µs two clocks may have drifted apart between two instants.
func drift(from, to instant.Instant) int64 { return max(0, to.Sub(from)).Microseconds() / maxDrift }

// skew returns the offset to add to an instant's µs to get the time at that instant.
func (c *clock) skew() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.best(instant.Now())
}

// A reading is the present, and what converts instants to the database's µs since 1970.
type reading struct {
	skew int64
	at   instant.Instant
}

// reading returns the present.
func (c *clock) reading() reading { return reading{c.skew(), instant.Now()} }

// best returns the middle of the bounds, but is never behind the clock by more than maxSkew:
// workers rely on that for ids. mu is held.
func (c *clock) best(at instant.Instant) int64 {
	known := c.known(at)
	return max(known.low+(known.high-known.low)/2, known.high-maxSkew.Microseconds())
}

// now returns the database's time in µs since 1970.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := instant.Now()
	return micros(at) + c.best(at)
}

// closed returns the latest time, in µs since 1970, for which no process can still draw an id: not
// even one that has not noticed yet that the clock was set forward.
func (c *clock) closed(at instant.Instant) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	us := micros(at) + c.known(at).low - 2*maxSkew.Microseconds()
	if at < c.until {
		us -= c.leapt
	}
	return us
}

// stepped returns how often the clock was found to have been set.
func (c *clock) stepped() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps
}

// take returns the first of n ticks for ids, and the time in µs since 1970. A tick is a number of
// µs since [Epoch] and serves one id. Ticks rise even if the clock does not.
func (c *clock) take(n int) (first, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := instant.Now()
	now = micros(at) + c.best(at)
	first = max(c.last+1, now-store.EpochMicro)
	c.last = first + int64(n) - 1
	return first, now
}

// micros returns an instant in µs.
func micros(at instant.Instant) int64 { return at.Sub(0).Microseconds() }

// since returns the time elapsed since an instant.
func since(at instant.Instant) time.Duration { return instant.Now().Sub(at) }
