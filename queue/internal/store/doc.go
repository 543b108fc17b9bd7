// Package store does what package queue does with its tables: the statements, their arguments,
// and reading their rows. It knows sessions, queues, blocks and ids; it does not know clients,
// workers, or what they have in memory.
//
// What makes any number of workers safe at once:
//
// A process is a row of node. Its leases are its own while that row says live. A row stops
// saying so once, by a guarded UPDATE, and never says so again: a process that is late comes
// back under another name. So a block may be taken from a process that is not live without
// further checks.
//
// A block is taken by an UPDATE that compares the fence it saw, so one of several takers gets
// it. The holder reads the block's jobs without locks, since nobody else does.
//
// A job is finished by deleting its row, which only one transaction can do. A transaction that
// moves a job to another table locks the job's row, and ends with a locking read of the block's
// fence: a worker that has lost the block moves nothing.
package store
