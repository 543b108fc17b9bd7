package block

import (
	"cmp"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Job is what a block knows of a job in memory. Its worker fills in the first part, and does not change it.
type Job struct {
	ID       int64
	Priority int
	Kind     string
	Line     string // the sequence in which it runs: its key, or one for the whole block; "": none
	Order    int64  // its order among the jobs that may start, and among those of its line
	RunAt    int64  // in µs; of a delayed job
	Tenant   string // whose it is, in a fair queue
	Cost     int    // for how many jobs it counts at rates, and in turns; 0: 1
	Of       any    // what the worker has of it

	From  store.JobTable
	Phase Phase
	Row   RowWork
	Tx    TxWork

	Tried    bool // it is on trial: it does not make way for others
	Picked   bool // it was picked ahead of others, and has not begun
	Unloaded bool // what it carries was left in the table

	Turn  int64   // its turn, in a fair queue; 0: it has none yet
	guest *tenant // where it counts as one that may start; nil: nowhere

	held *heldList // where it waits for the limit of its tenant; nil: nowhere

	Size    int // of what it carries: payload and last snapshot
	counted int // its size, as counted against the room for reading ahead
}

// A Phase is how far a worker has come with a job. It never goes back: an attempt that begins anew is
// another Job.
type Phase uint8

// The phases, in their order.
const (
	PhaseRead    Phase = iota // in memory: it may begin, or waits for others
	PhaseRunning              // a handler has it, or waits to run it
	PhaseEnded                // it has an outcome, which is not committed
	PhaseWritten              // its outcome is committed, or was given up
)

// A RowWork is what is under way with a job's row. An outcome that comes meanwhile waits for its end.
type RowWork uint8

// What may be under way with a row.
const (
	RowFree     RowWork = iota
	RowLeaving          // it is being checked out of its block: it is not in the table of running jobs yet
	RowUpdating         // it is in that table, and a statement changes it there
)

// A TxWork is what a handler's own transaction has done with its job.
type TxWork uint8

// What a transaction may have done.
const (
	TxNone      TxWork = iota
	TxPinned           // it is about to complete the job, or others of its batch: the job stays in its table
	TxCompleted        // it has completed the job
)

// Running reports whether the job has begun and not ended.
func (j *Job) Running() bool { return j.Phase == PhaseRunning }

// HasEnded reports whether the job has an outcome, or was given up.
func (j *Job) HasEnded() bool { return j.Phase >= PhaseEnded }

// Waits reports whether the job was read, has not begun, and has no row of its own.
func (j *Job) Waits() bool {
	return j.Phase == PhaseRead && j.Row == RowFree && j.From != store.AmongRunning
}

// InPlace reports whether the job runs without a row of its own, and may get one.
func (j *Job) InPlace() bool {
	return j.Running() && j.Row == RowFree && j.From != store.AmongRunning && j.Tx == TxNone
}

// Place returns the job's position among those that may start.
func (j *Job) Place() Place { return Place{Priority: j.Priority, Order: cmp.Or(j.Turn, j.Order)} }

// Due returns its place among the delayed ones.
func (j *Job) Due() Due { return Due{At: j.RunAt, ID: j.ID} }

// FIFO is the line of the jobs of a block that all run one after the other. No job can have it as its key:
// keys have no blanks at their ends.
const FIFO = " fifo"

// The order in which jobs are tried that may have ended a worker: those for which others wait come first.
const (
	rankFIFO  = iota // the head of a FIFO queue
	rankKey          // the head of a key
	rankOther        // nobody waits for it
	Ranks
)

// RankOf returns the rank of a job by its line.
func RankOf(line string) int {
	switch line {
	case FIFO:
		return rankFIFO
	case "":
		return rankOther
	}
	return rankKey
}
