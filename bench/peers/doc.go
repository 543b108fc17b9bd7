// Package peers compares dbcron with its alternatives under the same workload, in one run on one
// machine: River on the same PostgreSQL, asynq on Redis, NATS JetStream, and for locks redsync on
// Redis and etcd. It interleaves the rounds, so that a machine that becomes slower slows all of
// them. It prints the table of docs/benchmarks.md and draws its chart.
//
// Redis and etcd are Debian's packages redis-server and etcd-server. A missing one is left out, and
// the output says so. JetStream is a server within the test's process.
package peers
