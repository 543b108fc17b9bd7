// Package queue does jobs later: a queue in tables of the database that a program
// has anyway.
//
// # How it works
//
// A job's state is the table that it stands in. A ready job is a row that is
// inserted, and deleted when the job is done; it is never updated, and never locked
// or marked by a worker that does it. Instead a queue is divided into blocks, by a
// hash of the job's ordering key or id, and workers lease blocks: whoever has a block
// is the only one that reads it, with a cursor and in batches. So a job costs one
// insert and one delete, both shared with others.
//
//	      Enqueue                        done: deleted
//	         │                                ▲
//	         ▼                                │
//	      ready ──── a worker reads it ───────┤
//	      ▲  │                                │
//	Retry │  │ it runs for a second, or may   │
//	      │  │ have ended its worker          │
//	      │  ▼                                │
//	      │ running ──────────────────────────┤
//	      │  │                                │
//	      │  │ it fails (also from ready)     │
//	      │  ▼                                │
//	      │ delayed ──── its time comes ──────┘
//	      │  │
//	      │  │ it has failed too often
//	      │  ▼
//	      dead
//
// # What is promised
//
//   - A job that was enqueued is done at least once, or becomes a dead letter,
//     whatever crashes. A crash repeats what was done and not yet committed as such,
//     a few milliseconds of work; see [WorkerOptions.AckEach] and AtMostOnce.
//   - The effects of a job that its handler writes in a transaction with
//     [Delivery.CompleteTx] happen exactly once.
//   - Jobs of one queue with the same [Job.Key] are done one after the other in the
//     order in which they were enqueued, by whichever workers, also across crashes
//     and, unless the queue says otherwise, retries. Jobs without a key are done in
//     about the order in which they were enqueued.
//   - A worker that was stopped for longer than its lease and wakes up starts no job
//     of what others have taken over, and the contexts of its running jobs end.
//   - A job that ends the process that runs it within five seconds is dead after
//     MaxCrashes times, three at the least, and takes no other job with it.
//   - A worker that is stopped hands over what it does not run at once.
//
// # What the order depends on
//
// The order of a key is that of the jobs' ids, which are the times at which they were
// enqueued, by the database's clock as far as each process knows it. So of two jobs
// of a key the one comes first whose Enqueue returned before that of the other was
// called, if one process enqueues both, however long the database took, or if the clocks
// that two processes have of the database differ by less than the time between. Jobs that
// are enqueued at the same time are in no order. A transaction in which a job is enqueued must not last
// longer than [Window], or jobs of its keys that were enqueued later may be done
// before; it is done in any case. A job with a delay takes its place when it is due.
package queue
