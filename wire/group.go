package wire

import "encoding/json"

// A NewGroup is a group to create: open, or with all of its jobs.
type NewGroup struct {
	Name     string   `json:"name,omitempty" maxLength:"200" doc:"The name of the group, for people."`
	Keep     Duration `json:"keep,omitempty" maxLength:"40" doc:"The group and its results are kept this long after its end, or forever. Default: 7d." example:"7d"`
	Callback *NewJob  `json:"callback,omitempty" doc:"The job that is enqueued, once, when the group has ended."`
	Jobs     []NewJob `json:"jobs,omitempty" maxItems:"1000" nullable:"false" doc:"All jobs of the group, which is then sealed at once. Without them it is open, and jobs that are enqueued with its id as their group are added."`
}

// A CreatedGroup is the result of creating a group.
type CreatedGroup struct {
	ID    string     `json:"id" doc:"The id of the group."`
	State string     `json:"state" enum:"open,sealed" doc:"The state of the group."`
	Jobs  []Enqueued `json:"jobs" nullable:"false" doc:"The results, in the order of the jobs in the request."`
}

// A Group is a number of jobs that end with a callback.
type Group struct {
	ID              string          `json:"id" doc:"The id of the group. Ids grow with the time at which groups were created."`
	Name            string          `json:"name,omitempty" table:",rare" doc:"The name of the group, for people."`
	State           string          `json:"state" enum:"open,sealed,done" doc:"open: jobs are added, and it does not end yet. sealed: it ends when none of its jobs is pending. done: it has ended."`
	Created         Instant         `json:"created" doc:"When the group was created."`
	Ended           Instant         `json:"ended,omitzero" doc:"When the group ended."`
	Callback        string          `json:"callback,omitempty" table:",rare" doc:"The kind of the job that is enqueued when the group has ended."`
	Keep            Duration        `json:"keep" table:"-" doc:"The group and its results are kept this long after its end, or forever."`
	Error           string          `json:"error,omitempty" table:",rare" doc:"Why the callback could not be enqueued."`
	CallbackQueue   string          `json:"callback_queue,omitempty" table:"-" doc:"The queue of that job, if it names one. Lists leave it out."`
	CallbackPayload json.RawMessage `json:"callback_payload,omitempty" table:"-" doc:"The payload of that job, if it is JSON. Lists leave it out."`
	Jobs            *GroupCount     `json:"jobs,omitempty" table:"-" doc:"What has become of the jobs of the group. Lists leave it out."`
}

// A GroupCount says what has become of a group's jobs.
type GroupCount struct {
	Pending   int `json:"pending" doc:"The number of jobs that have not ended."`
	Done      int `json:"done" doc:"The number of jobs that are done."`
	Dead      int `json:"dead" doc:"The number of jobs that failed too often."`
	Cancelled int `json:"cancelled" doc:"The number of jobs that were cancelled, discarded or deleted."`
}

// A GroupResult says what has become of a job of a group.
type GroupResult struct {
	Job    string          `json:"job" doc:"The id of the job."`
	Queue  string          `json:"queue" doc:"The queue of the job."`
	Kind   string          `json:"kind" doc:"The kind of the job."`
	State  string          `json:"state" enum:"pending,done,dead,cancelled" doc:"What has become of the job."`
	Result json.RawMessage `json:"result,omitempty" table:",rare" doc:"The result of the job: any JSON."`
	Error  string          `json:"error,omitempty" table:",rare" doc:"Why the job is dead."`
}
