// Package queuetest helps to test the jobs of a program: the handlers alone, what is enqueued,
// and what happens to it. It is for tests only.
//
// # Handlers
//
// [Do] makes an attempt at a job, given by value, with a worker's handlers, their middleware
// and decoding, and returns the outcome. No database is needed: [Worker] returns a worker
// without one, to which the program adds its handlers.
//
// # What is enqueued
//
// [DB] and [Client] give a test a SQLite database of its own. All functions that take a client
// also work with one from [queue.New], on a database of any engine. [Enqueued] and
// [NotEnqueued] look for jobs by example: zero fields of the example match anything. They see
// committed jobs only.
//
// # Draining
//
// [Drain] processes ready and due jobs in the test's goroutine until there are none. So
// handlers may use t, and everything has happened when Drain returns. It uses the worker's own
// code: order, retries, dead letters, timeouts and CompleteTx work as usual. Jobs begin by
// priority, and then in the order in which they were enqueued or are due.
//
// # Time
//
// Tests need not wait for a delay or a retry: [Advance] makes jobs due. It moves the jobs, not
// the database's clock: the time at which a job is due becomes earlier, while the time of its
// enqueueing, the retention of dead jobs, leases and schedules stay the same. A [queue.Worker]
// that runs at the same time may take up to a minute to notice. Drain notices at once.
package queuetest
