package store

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

// Epoch is the zero point of the times in job ids.
var Epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// EpochMicro is [Epoch] in µs since 1970.
var EpochMicro = Epoch.UnixMicro()

// IdBits is the number of random bits of an id, below its time.
const IdBits = 12

// TimeOf returns when an id was drawn, by the database's clock as far as the drawing process
// knew it.
func TimeOf(id int64) time.Time {
	return Epoch.Add(time.Duration(id>>IdBits) * time.Microsecond)
}

// TickOf returns the least id of a time, given in µs since 1970.
func TickOf(us int64) int64 { return (us - Epoch.UnixMicro()) << IdBits }

// A Salt is the random bits in the ids of a process. They separate them from ids that others
// draw in the same µs. A process keeps its salt until it finds an id taken, and so another
// process with the same salt. So two processes either never draw the same id, or find out soon.
// With new random bits for each id, they would draw some ids twice for as long as they run.
type Salt struct{ Bits atomic.Int64 }

// Change draws other bits. The highest value has a meaning of its own: see [Follower].
func (s *Salt) Change() { s.Bits.Store(rand.Int64N(Follower)) }

// ID returns the id of a tick.
func (s *Salt) ID(tick int64) int64 { return tick<<IdBits | s.Bits.Load() }

// A BlockID identifies a block.
type BlockID struct{ Queue, Divided int }

// A JobID identifies a job. An id alone may not: two processes may draw the same id in the same
// µs. In one block, the table's key refuses the second job, and its producer draws another id.
// In two blocks or queues, both jobs live.
type JobID struct {
	BlockID
	ID int64
}

// Divided returns the block that a job belongs to, of so many: the 64-bit FNV-1a
// hash of its ordering key, or of its id in decimal digits if it has none, modulo
// their number. In a queue whose number of blocks was changed, the first block's
// number is added.
func Divided(key string, id int64, blocks int) int {
	if key != "" {
		return int(fnv64a(key) % uint64(max(1, blocks)))
	}
	var digits [20]byte
	return int(fnv64a(strconv.AppendInt(digits[:0], id, 10)) % uint64(max(1, blocks)))
}

// fnv64a is hash/fnv's New64a, which allocates.
func fnv64a[T string | []byte](text T) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// Follower are the low bits of the id of a job that follows one that was committed late.
const Follower = 1<<IdBits - 1
