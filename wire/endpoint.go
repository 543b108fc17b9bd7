package wire

// An Endpoint is where a queue's jobs are sent.
type Endpoint struct {
	Queue       string   `json:"queue" doc:"The queue whose jobs are sent."`
	URL         string   `json:"url,omitempty" doc:"Where jobs are sent that name no endpoint of their own. Without it those become dead letters. Only the scope admin sees its query."`
	Format      string   `json:"format" table:",rare" enum:"plain,cloudevents" doc:"plain: a request has the payload and dbcron's headers. cloudevents: it has those of a CloudEvent, too."`
	Concurrency int      `json:"concurrency" doc:"The number of requests that each daemon sends at a time."`
	Batch       int      `json:"batch" table:"-" doc:"The greatest number of jobs in a request, as a JSON array. With 1, each request is a job."`
	Timeout     Duration `json:"timeout" doc:"A request fails after this long, if neither the job nor the queue says."`
	Secret      string   `json:"secret,omitempty" table:"-" doc:"The key that signs requests, if it was made now. It is not shown again."`
	OldSecret   bool     `json:"old_secret" table:"-" doc:"Whether requests are also signed with the secret before."`
}

// An EndpointDetail is an endpoint, how it is, and some of its newest answers.
type EndpointDetail struct {
	Endpoint
	Standing string           `json:"standing" doc:"How the endpoint is, in words."`
	Answers  []EndpointAnswer `json:"answers" nullable:"false" doc:"Some of the newest answers, the newest first, up to a few seconds late."`
}

// An EndpointAnswer is an endpoint's answer to a job.
type EndpointAnswer struct {
	At       Instant `json:"at" doc:"When the answer had come, or the request had failed."`
	Took     float64 `json:"took_seconds" doc:"The time from the beginning of the request to the end of the answer, in seconds."`
	Status   int     `json:"status,omitempty" doc:"The status of the answer. It is left out if there was no whole answer."`
	Error    string  `json:"error,omitempty" doc:"Why the attempt failed. It is left out if it went well."`
	Origin   string  `json:"origin,omitempty" doc:"Where the job was sent, if it has an endpoint of its own."`
	Job      string  `json:"job" doc:"The id of the job."`
	By       string  `json:"by" doc:"The process that sent the job."`
	Failures int     `json:"failures,omitempty" doc:"How often in a row the endpoint had pushed back by then."`
	Until    Instant `json:"until,omitzero" doc:"Until when nothing more was sent to the endpoint then."`
}

// An EndpointChange is a change of an endpoint. What is left out stays, or is as usual in a new one.
type EndpointChange struct {
	URL           *string   `json:"url,omitempty" maxLength:"1000" doc:"Where jobs are sent: https:// or http://. If it is empty, each job names its own endpoint." example:"https://worker.example.org/jobs"`
	Format        *string   `json:"format,omitempty" enum:"plain,cloudevents" doc:"plain: a request has the payload and dbcron's headers. cloudevents: it has those of a CloudEvent, too. A new endpoint is plain."`
	Concurrency   *int      `json:"concurrency,omitempty" minimum:"1" maximum:"10000" doc:"The number of requests that each daemon sends at a time, 16 in a new endpoint. A limit of the queue bounds all daemons together."`
	Batch         *int      `json:"batch,omitempty" minimum:"1" maximum:"1000" doc:"The greatest number of jobs in a request, 1 in a new endpoint. More than one are sent as a JSON array, and answered by an array of outcomes."`
	Timeout       *Duration `json:"timeout,omitempty" maxLength:"40" doc:"A request and its answer may take this long, up to 24h, if neither the job nor the queue says. It is 30s in a new endpoint." example:"30s"`
	Secret        string    `json:"secret,omitempty" maxLength:"100" doc:"The key that signs requests from now on: whsec_ and 24 to 64 bytes in base64. The one before signs them, too, until it is dropped."`
	NewSecret     bool      `json:"new_secret,omitempty" doc:"Whether to make a new secret, and show it. The one before signs requests, too, until it is dropped."`
	DropOldSecret bool      `json:"drop_old_secret,omitempty" doc:"Whether to sign with the newest secret alone, which is needed before there can be another."`
}
