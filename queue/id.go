package queue

import (
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"
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

// idAt makes an id of a tick: random bits keep it apart from those of other processes. The
// last of them says something: see [follower].
func idAt(tick int64) int64 { return tick<<idBits | rand.Int64N(follower) }

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
