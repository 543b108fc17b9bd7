package jobfield

import (
	"encoding/json"
)

// A Claim identifies an attempt at a job that one process has handed out to a client of the HTTP API, so that another
// process can record its outcome. It is valid for as long as the worker that it names has the job.
type Claim struct {
	Node     string // the name of its worker in the tables
	Queue    string
	Block    int
	Fence    int64 // of the block
	Priority int
	Job      int64
	Attempt  int
	Group    bool // the job belongs to a group, so it may have a result
}

// An Outcome is the outcome of a job that another process has handed out: nil, or an error as a
// handler would return it.
type Outcome struct {
	Claim  Claim
	Err    error
	Result json.RawMessage // of a done job that belongs to a group
}
