package queue

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
)

// Epoch is the time that the ids of jobs count from.
var Epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

var epochMicro = Epoch.UnixMicro()

// idBits are the random bits of an id, below its time.
const idBits = 12

// TimeOf returns when an id was made, by the database's clock as far as the process
// that made it knew that.
func TimeOf(id int64) time.Time {
	return Epoch.Add(time.Duration(id>>idBits) * time.Microsecond)
}

// tickOf returns the least id of a moment, given in µs since 1970.
func tickOf(us int64) int64 { return (us - Epoch.UnixMicro()) << idBits }

// A clock is the database's, as a process knows it: read now and then, and counted
// on by a clock that nobody sets.
type clock struct {
	mu   sync.Mutex
	read int64           // the database's µs since 1970
	at   instant.Instant // when it was read
	last int64           // the tick of the newest id
}

var readClock = dialect.SQL("queue.clock", `SELECT {us {now}}`)

// clockAge is how long a clock is counted on before the database's is read again.
const clockAge = time.Minute

// sync reads the database's clock, if it has not been read for a while.
func (c *clock) sync(ctx context.Context, db *dialect.Session, at instant.Instant) error {
	c.mu.Lock()
	fresh := c.read != 0 && at.Sub(c.at) < clockAge
	c.mu.Unlock()
	if fresh {
		return nil
	}
	before := instant.Now()
	var us int64
	if err := db.Get(ctx, readClock, nil, &us); err != nil {
		return err
	}
	after := instant.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.at = us, before.Add(after.Sub(before)/2)
	return nil
}

// now returns the database's time in µs since 1970.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read + instant.Now().Sub(c.at).Microseconds()
}

// skew is what to add to an instant's µs for now at that moment.
func (c *clock) skew() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read - c.at.Sub(0).Microseconds()
}

// take returns the first of n ticks for ids, and the time in µs since 1970. Ticks rise,
// also if the clock does not: each is the µs since [Epoch], one to an id.
func (c *clock) take(n int) (first, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = c.read + instant.Now().Sub(c.at).Microseconds()
	first = max(c.last+1, now-Epoch.UnixMicro())
	c.last = first + int64(n) - 1
	return first, now
}

// idAt makes an id of a tick: random bits keep it apart from those of other processes.
func idAt(tick int64) int64 { return tick<<idBits | rand.Int64N(1<<idBits) }

// Divided returns the block that a job belongs to, of so many: the 64-bit FNV-1a
// hash of its ordering key, or of its id in decimal digits if it has none, modulo
// their number. In a queue whose number of blocks was changed, the first block's
// number is added.
func Divided(key string, id int64, blocks int) int {
	h := fnv.New64a()
	if key != "" {
		_, _ = h.Write([]byte(key)) // never fails
	} else {
		_, _ = h.Write(strconv.AppendInt(nil, id, 10))
	}
	return int(h.Sum64() % uint64(max(1, blocks)))
}
