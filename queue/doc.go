// Package queue runs jobs later, from tables of the database that a program already uses.
//
// # How it works
//
// The table that holds a job is its state. A ready job is a row that is inserted, and deleted
// when the job is done; workers never update, lock or mark it. Instead, a queue is divided into
// blocks by a hash of the job's ordering key or id, and workers lease blocks. Only the holder of
// a block reads it, with a cursor and in batches. So a job costs one insert and one delete, and
// both share statements with other jobs.
//
//	      Enqueue                        done: deleted
//	         │                                ▲
//	         ▼                                │
//	      ready ──── a worker reads it ───────┤
//	      ▲  │                                │
//	Retry │  │ it runs for a second, or may   │
//	      │  │ have crashed its worker        │
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
//   - A job that was enqueued is done at least once, or becomes a dead letter, whatever crashes.
//     A crash repeats work that was done and not yet committed as done, a few milliseconds of it;
//     see [WorkerOptions.AckEach] and [WorkerOptions.AtMostOnce].
//   - The effects that a handler writes in a transaction with [Delivery.CompleteTx] happen
//     exactly once.
//   - Jobs of one queue with the same [Job.Key] are done one after the other, in the order in
//     which they were enqueued, on whichever worker, even across crashes and, unless the queue
//     says otherwise, retries. Jobs without a key are done in about the order in which they were
//     enqueued.
//   - A worker that was stopped for longer than its lease and continues starts none of the jobs
//     that others have taken over, and the contexts of its running jobs end.
//   - A job that crashes its process within five seconds becomes a dead letter after MaxCrashes
//     crashes, at least three, and takes no other job with it.
//   - A worker that is stopped hands over at once what it does not run.
//
// # What the order depends on
//
// The order of a key is the order of the jobs' ids. An id is the time at which its job was
// enqueued, by the database's clock as far as the process knows it. If one process enqueues two
// jobs of a key, the one whose Enqueue returned before the other was called comes first, however
// long the database took. The same holds for two processes if their views of the database's clock
// differ by less than the time between the calls. Jobs that are enqueued at the same time are in
// no particular order. A transaction that enqueues a job must not last longer than [Window], or
// jobs of its key that were enqueued later may be done before it; it is done in any case. A job
// with a delay takes its place when it is due.
package queue
