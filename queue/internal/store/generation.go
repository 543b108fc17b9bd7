package store

// How the blocks of a queue are replaced when their number changes. Jobs enqueued from some
// moment on go to the blocks of a new generation; those of old generations are removed when
// they are empty. All producers know of that moment before it comes. So a job's id determines
// its generation, whoever enqueues it: of two jobs of a key, the earlier one is never in the
// later generation.

// A Generation is the set of blocks that a queue uses from some moment on.
type Generation struct {
	Number int
	First  int   // number of the first block
	Blocks int   // number of blocks
	From   int64 // µs since 1970, by the database's clock; zero for the first generation
	FIFO   bool
}

// ResizeAfter is the delay between creating a generation's blocks and its start. It is longer
// than the time in which a producer can still number jobs by outdated settings.
const ResizeAfter = 2 * SettingsAge

// Block returns the block of a job.
func (g Generation) Block(key string, id int64) int {
	return g.First + Divided(key, id, g.Blocks)
}

// FIFOAt reports whether a block is FIFO.
func (q *Queue) FIFOAt(divided int) bool {
	for _, g := range q.Generations {
		if divided >= g.First && divided < g.First+g.Blocks {
			return g.FIFO
		}
	}
	return false
}

// Newest returns the generation created last, which may not have begun.
func (q *Queue) Newest() Generation { return q.Generations[len(q.Generations)-1] }

// Block returns the block of a job.
func (q *Queue) Block(key string, id int64) int {
	if len(q.Generations) == 1 {
		return q.Generations[0].Block(key, id)
	}
	return q.GenerationAt(TimeOf(id).UnixMicro()).Block(key, id)
}

// After returns the generation that follows one; the newest, if none does.
func (q *Queue) After(number int) Generation {
	for _, g := range q.Generations {
		if g.Number > number {
			return g
		}
	}
	return q.Generations[len(q.Generations)-1]
}

// GenerationAt returns the generation of jobs enqueued at a time.
func (q *Queue) GenerationAt(us int64) Generation {
	i := len(q.Generations) - 1
	for i > 0 && q.Generations[i].From > us {
		i--
	}
	return q.Generations[i]
}
