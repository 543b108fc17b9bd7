package queue

import "github.com/dbcron/dbcron/queue/internal/block"

// A FIFO queue has one block, and runs its jobs one after the other as if all of them had the
// same key. FIFO is a property of a generation of blocks: changing the setting creates a new
// generation, and jobs enqueued from some moment on belong to it, whoever enqueues them. Its
// jobs begin when those of earlier generations have ended: see holder_generation.go. So each
// job runs by the rules that applied when it was enqueued, and no worker has to learn of a
// change in time.

// fifoHold is the hold_key of a job that has no key and that such a block waits for.
const fifoHold = block.FIFO
