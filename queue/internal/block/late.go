package block

import "github.com/dbcron/dbcron/queue/internal/store"

// How a key keeps its order when a job is committed so late that it may be missed for a while: the next job of its block
// carries a mark. A worker that reads such an id reads the whole block before it goes on. See queue/enqueue_late.go.

// comesLate reports whether a job before this one may have been missed. It was not if this one was read before, or if the
// whole block has been read since, in however many parts: to know both only saves reads of the whole block.
func (b *Block) comesLate(j *Job) bool {
	return j.Line != "" && j.ID&store.Follower == store.Follower && b.seen[j.ID] == nil && !b.followed[j.ID]
}

// readWhole has the whole block read before jobs start that follow late ones.
func (b *Block) readWhole(rows []*Job) {
	if b.followed == nil {
		b.followed = map[int64]bool{}
	}
	for _, j := range rows {
		if b.comesLate(j) {
			b.followed[j.ID] = true
		}
	}
	b.Reads.Anew()
}

// late reports whether a job, if it is new here, was committed later than Window, and was not put back.
func (b *Block) late(j *Job, r Read) bool {
	if j.From != store.AmongReady || r.Back || !b.Reads.Late(j.Priority, j.ID) {
		return false
	}
	l := b.keyQueues[j.Line]
	return j.Line == "" || l == nil || l.Skipped() == 0
}
