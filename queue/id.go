package queue

import (
	"time"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// Epoch is the zero point of the times in job ids.
var Epoch = store.Epoch

// TimeOf returns the time at which an id was drawn, by the database's clock as the drawing
// process knew it.
func TimeOf(id int64) time.Time { return store.TimeOf(id) }

// Divided returns the block that a job belongs to, of so many: the 64-bit FNV-1a
// hash of its ordering key, or of its id in decimal digits if it has none, modulo
// their number. In a queue whose number of blocks was changed, the first block's
// number is added.
func Divided(key string, id int64, blocks int) int { return store.Divided(key, id, blocks) }
