package queue

import "encoding/json"

// A Claim identifies an attempt at a job that a [Receiver] has handed out, so that another process can
// record its outcome: see [Client.SettleClaims]. It is for endpoints of other protocols, which hand jobs to
// clients and may be asked for the outcome anywhere; dbcron's HTTP API is one. It is valid for as long as the
// worker that it names has the job. Whoever has a Claim can end the job, and its fields can be guessed, so
// sign what leaves the process.
type Claim struct {
	Node     string // the name of the Receiver's worker in the tables: see [Receiver.Node]
	Queue    string
	Block    int
	Fence    int64 // of the block
	Priority int
	Job      int64
	Attempt  int
}

// A ClaimOutcome is the outcome of a claimed job.
type ClaimOutcome struct {
	Claim  Claim
	Err    error           // what a [Handler] would return: nil, an error, or RetryAfter, Snooze, Discard or Bury
	Result json.RawMessage // of a done job, as by [Delivery.SetResult]
}

// Claim returns what another process needs to record the outcome of a received job.
func (d *Delivery) Claim() Claim {
	run := d.runner()
	run.mu.Lock()
	defer run.mu.Unlock()
	return Claim{
		Node: run.lease.node, Queue: d.Queue, Block: d.b.divided, Fence: d.b.fence, Priority: d.Priority,
		Job: d.ID, Attempt: d.Attempt,
	}
}
