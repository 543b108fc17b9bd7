// Package simulation has only tests. They run the real clients, workers, lockers and schedulers on a real
// SQLite file, in a bubble of testing/synctest, where time is virtual: minutes of life, with processes that
// die, stand still and are cut off, take a second.
//
// A seed decides everything that the simulation decides: the workload's inputs and settings, the faults,
// how long each round trip takes, and thereby the order in which the processes' round trips reach the
// database. See gate_test.go for how, world_test.go for a run from its beginning to its end,
// workload_test.go for what a workload must have, and CONTRIBUTING.md for how to add one.
//
// What is simulated is the surroundings of the processes, and nothing of the processes themselves. SQLite
// has one writer at a time, so what row locks decide on PostgreSQL, MariaDB and MySQL is not tested here:
// package faults and the packages' own tests do that on servers.
//
// Go's runtime also decides: which goroutine goes on, which case of a select is taken, how a map is walked,
// and how a pointer is hashed. overlay makes it draw from the seed what decides something in the program, and
// interrupt no goroutine of a bubble. Sorting round trips alone leaves the processes' own order free.
// WebAssembly has no SQLite, SQLite's memdb has no WAL, and a simulated database is another program.
package simulation
