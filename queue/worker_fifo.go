package queue

// A FIFO queue has one block, and runs its jobs one after the other as if all of them had the
// same key. FIFO is a property of a generation of blocks: changing the setting creates a new
// generation, and jobs enqueued from some moment on belong to it, whoever enqueues them. Its
// jobs begin when those of earlier generations have ended: see worker_generation.go. So each
// job runs by the rules that applied when it was enqueued, and no worker has to learn of a
// change in time.

const (
	// fifoLine is the in-memory key of the jobs of a FIFO block. No job can have it: keys have
	// no blanks at their ends.
	fifoLine = " fifo"

	// fifoHold is the hold_key of a job that has no key and that such a block waits for.
	fifoHold = fifoLine
)

// lineOf returns the sequence of the jobs of a key: see Delivery.line.
func (b *block) lineOf(key string) string {
	if b.fifo {
		return fifoLine
	}
	return key
}
