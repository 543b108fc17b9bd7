// Package queuetest helps to test the jobs of a program: the handlers by themselves,
// what is enqueued, and what becomes of it. It is for tests only.
//
// # Handlers
//
// [Do] has the handlers of a worker try a job that is given by value, with the
// middleware and the decoding that it would have, and tells what would become of it.
// There need be no database: [Worker] makes a worker that has none, for the program to
// give its handlers to.
//
// # What is enqueued
//
// [DB] and [Client] give a test a database of its own, in SQLite. All functions that
// take a client work as well with one of [queue.New] on a database that the test has, of
// any engine. [Enqueued] and [NotEnqueued] look for jobs by an example: what the
// example leaves at zero may be anything. They see what is committed.
//
// # Draining
//
// [Drain] does what is ready or due, in the goroutine of the test, until nothing is:
// so handlers may use t, and when Drain returns, all has happened. It is the worker's
// own machinery: order, retries, dead letters, timeouts and CompleteTx are those that
// there are otherwise. Jobs begin in the order of their priorities, and then in that in
// which they were enqueued, or are due.
//
// # Time
//
// Nobody waits in a test for a delay or a retry: [Advance] lets jobs become due. It
// moves the jobs, not the clock, which is the database's: a job's time to run at becomes
// earlier, and when it was enqueued, how long dead jobs are kept, leases and schedules
// stay as they are. A [queue.Worker] that runs at the same time may notice up to a
// minute later. Drain does at once.
package queuetest
