package store

import (
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

// Epoch is the time that the ids of jobs count from.
var Epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// EpochMicro is [Epoch] in µs since 1970.
var EpochMicro = Epoch.UnixMicro()

// IdBits are the random bits of an id, below its time.
const IdBits = 12

// TimeOf returns when an id was made, by the database's clock as far as the process
// that made it knew that.
func TimeOf(id int64) time.Time {
	return Epoch.Add(time.Duration(id>>IdBits) * time.Microsecond)
}

// TickOf returns the least id of a moment, given in µs since 1970.
func TickOf(us int64) int64 { return (us - Epoch.UnixMicro()) << IdBits }

// A Salt is the random bits of the ids that a process draws: they keep these apart from those
// that others draw in the same µs. A process keeps its salt until another process turns out to
// have the same, since an id is taken. So two processes either draw no id twice, or find that
// out soon. If each id had bits of its own, they would draw some twice for as long as they run.
type Salt struct{ Bits atomic.Int64 }

// Change draws other bits. The last value says something else: see [follower].
func (s *Salt) Change() { s.Bits.Store(rand.Int64N(Follower)) }

// ID makes an id of a tick.
func (s *Salt) ID(tick int64) int64 { return tick<<IdBits | s.Bits.Load() }

// A BlockID is a block of a queue.
type BlockID struct{ Queue, Divided int }

// A JobID is what no two jobs have in common. Two processes may draw one id in the same µs. In
// one block the key of the table keeps the second job out, and its producer draws another id.
// In two blocks, or queues, both jobs live.
type JobID struct {
	BlockID
	ID int64
}

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

// Follower is the end of the id of a job that comes after one that was committed late.
const Follower = 1<<IdBits - 1
