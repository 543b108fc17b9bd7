package queue

// A queue that is FIFO has one block, and does its jobs one after the other as if all of them had
// one key. What is FIFO is a generation of blocks: a change of the setting makes a new one, and
// jobs that are enqueued from some moment on belong to it, whoever enqueues them. Its jobs begin
// when those of the generations before it have ended: see worker_generation.go. So each job is done by
// the rules that held when it was enqueued, and no worker has to know of a change in time.

const (
	// fifoLine is the key that the jobs of a FIFO block have in a worker's memory. No job can
	// have it: keys have no blanks at their ends.
	fifoLine = " fifo"

	// fifoHold is what the row of a job says for which such a block waits, and that has no key.
	fifoHold = fifoLine
)

// lineOf returns what a job of a key goes one after the other with: see Delivery.line.
func (b *block) lineOf(key string) string {
	if b.fifo {
		return fifoLine
	}
	return key
}
