// Package peers measures dbcron beside what people would use instead, with the same workload, in
// one run on one machine: River on the same PostgreSQL, asynq on Redis, NATS JetStream, and for
// locks redsync on Redis and etcd. Rounds are interleaved, so that a machine that becomes slower
// becomes so for all. It prints the table of docs/benchmarks.md and draws its chart.
//
// Redis and etcd are Debian's packages redis-server and etcd-server; what is not installed is
// left out, and the output says so. JetStream is a server within the test's process.
package peers
