package wire

// A Node is a part of a daemon or a worker, such as its schedules or its sending of jobs.
type Node struct {
	Name      string   `json:"name" doc:"The host, the process and a random part. Each part of a process has a name of its own."`
	State     string   `json:"state" enum:"live,drained,lost,gone" doc:"live: it takes work. drained: it takes no new work, and ends what it has begun. lost: it was not heard of in time. gone: it has ended."`
	Version   string   `json:"version,omitempty" doc:"The version of the process's program, if it says one."`
	Tags      []string `json:"tags,omitempty" doc:"The process runs the schedules that have one of these tags. It is left out if it runs none."`
	Started   Instant  `json:"started" doc:"When the process started."`
	Until     Instant  `json:"until,omitzero" doc:"When the process counts as lost, unless it is heard of before."`
	Drained   Instant  `json:"drained,omitzero" table:"-" doc:"Since when the process takes no new work."`
	DrainedBy string   `json:"drained_by,omitempty" doc:"Who drained the process."`
}

// NodeWork is what a process has begun and not ended.
type NodeWork struct {
	Runs int `json:"runs" doc:"The number of runs of schedules that the process has begun."`
	Jobs int `json:"jobs" doc:"The number of blocks of queues that the process has, and of its jobs that run for long."`
}
