package queue

import (
	"log/slog"
	"time"
)

// WorkerOptions adjusts a Worker. The zero value is ready to use.
//
// A worker reserves connections of the client's pool, so that handlers which hold all others in
// transactions do not keep it from renewing its lease, or from reading and writing jobs: one for
// its lease, and Connections plus one for the rest. The workers on a pool share them, and take at
// most half of the pool. The smallest pool that suffices has 3 connections, except on SQLite,
// where a writing transaction makes all others wait in any case.
type WorkerOptions struct {
	Queues      []string      // default: default
	Concurrency int           // maximum number of jobs that run at a time; default: 16
	Batch       int           // how many jobs of a block are read at once; default: 100 to 1000, by how fast the worker is, and 100 if AtMostOnce
	Lease       time.Duration // other workers take its jobs after this time without a renewal; default: DefaultLease
	Grace       time.Duration // how long running jobs may continue after it is stopped; default: 30s; negative: not at all
	Connections int           // number of connections for reading and writing jobs; default: 2

	// ReadAhead limits the bytes of payloads of jobs that were read and have not begun, across
	// all its blocks; default: 64 MiB. A job whose payload does not fit waits without it, and the
	// payload is read when the job's turn has come. Running jobs come on top: Concurrency
	// payloads, whole batches, and what a Receiver has handed out. With AtMostOnce it is no hard
	// limit: the rows are gone, so payloads are kept, and the worker only reads fewer jobs at
	// once.
	ReadAhead int

	// AckEach commits the end of each job before its slot goes to another job, and before the
	// next job of its key begins: a crash then repeats at most Concurrency jobs, and none after a
	// later one of its key. Otherwise the ends of many jobs share a statement, and a crash
	// repeats what ended since the last one was sent: a few milliseconds of work.
	AckEach bool

	// AtMostOnce removes jobs before they run: a crash loses those that were read and not
	// finished, up to Batch of each block, and repeats none. So does a stop that takes longer
	// than Grace. Failed jobs are not retried.
	AtMostOnce bool

	// Isolated says that no job can crash the process. Then jobs that a dead worker has left are
	// done again at once, however many there are and however often it happens, and none of them
	// becomes a dead letter for it. Otherwise they are put on trial: a few run at a time until
	// they are trusted, after five seconds, and those whose workers died again then run alone.
	Isolated bool

	// BuryUnknown makes jobs of kinds without a handler in this worker dead letters. Otherwise
	// they stay where they are, for workers that have one, or until there is one.
	BuryUnknown bool

	// EndStuck makes Run end with [ErrStuck] when each of the Concurrency slots has been taken, for this long, by a handler that
	// does not return though its job's timeout is over. Jobs that have not begun are handed back, and the stuck ones have failed
	// once, with their timeouts. The program has to end then, since the handlers run on: its supervisor starts it again. Zero means
	// never.
	EndStuck time.Duration

	// LeaderLock is the name of a lock that the process holds, and that only one process can hold
	// at a time: see TakeOver of package admin. Empty means none.
	LeaderLock string

	Logger *slog.Logger // default: the client's

	// LogDone is the level, by queue, at which each done job is logged; debug for queues that it
	// lacks. Failed jobs are logged as info, and dead ones as warnings.
	LogDone map[string]slog.Level
}
