// Package store is what package queue does with its tables: the statements, their arguments,
// and what is read of their rows. It knows sessions, queues, blocks and ids, and nothing of
// clients, workers or what they have in memory.
//
// What makes any number of workers safe at once:
//
// A process is a row of node. What it holds is its own for as long as that row
// says live. A row stops saying so once, by a guarded UPDATE, and never says so
// again: whoever is late comes back under another name. So a block may be taken
// from one that is not live without a look at anything else.
//
// A block is taken by an UPDATE that names the fence it saw, so one of several
// gets it. Whoever has it reads its jobs without locks, since nobody else does.
//
// A job is finished by whoever deletes its row: there is one such. Moving a job to
// another table is a transaction that locks its row, and ends with a locking read
// of the block's fence: a worker that has lost the block moves nothing.
package store
