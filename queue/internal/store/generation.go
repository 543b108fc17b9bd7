package store

// What becomes of a queue's blocks when their number is changed: jobs that are enqueued
// from some moment on go to blocks of a new generation, and those of the old ones go
// when they are empty. All producers know of that moment before it comes, so a job's id
// says which generation it belongs to, whoever enqueues it: of two jobs of a key the
// earlier one is never in the later generation.

// A Generation is the blocks that a queue had from some moment on.
type Generation struct {
	Number int
	First  int   // the number of its first block
	Blocks int   // how many there are
	From   int64 // µs since 1970, by the database's clock; of the first one nothing
	FIFO   bool
}

// ResizeAfter is how long after its blocks were made a generation begins: longer than
// it takes a producer to read settings that are too old, and to number jobs by them.
const ResizeAfter = 2 * SettingsAge

// Block returns the block of a job.
func (g Generation) Block(key string, id int64) int {
	return g.First + Divided(key, id, g.Blocks)
}

// FIFOAt tells whether a block is FIFO.
func (q *Queue) FIFOAt(divided int) bool {
	for _, g := range q.Generations {
		if divided >= g.First && divided < g.First+g.Blocks {
			return g.FIFO
		}
	}
	return false
}

// Newest returns the generation that was made last, which may not have begun.
func (q *Queue) Newest() Generation { return q.Generations[len(q.Generations)-1] }

// Block returns the block of a job.
func (q *Queue) Block(key string, id int64) int {
	if len(q.Generations) == 1 {
		return q.Generations[0].Block(key, id)
	}
	return q.GenerationAt(TimeOf(id).UnixMicro()).Block(key, id)
}

// GenerationAt returns the generation that jobs of a moment belong to.
func (q *Queue) GenerationAt(us int64) Generation {
	i := len(q.Generations) - 1
	for i > 0 && q.Generations[i].From > us {
		i--
	}
	return q.Generations[i]
}
