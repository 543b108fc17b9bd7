package wire

// A Notification is the body of a request to a webhook that is told about schedules and queues that fail and recover.
// It is as Standard Webhooks has it.
type Notification struct {
	Type      string           `json:"type" doc:"It is dbcron.notification."`
	Timestamp Instant          `json:"timestamp" doc:"When the message was made."`
	Text      string           `json:"text" doc:"The message in one line, which chat services display."`
	Data      NotificationData `json:"data" doc:"What happened."`
}

// NotificationData is what a notification is about.
type NotificationData struct {
	Test      bool      `json:"test,omitempty" doc:"Whether it is a test: dbcron notify test."`
	Failed    int       `json:"failed" doc:"The number of schedules and queues that have failed, also of those that are not listed."`
	Recovered int       `json:"recovered" doc:"The number of those that are well again, also of those that are not listed."`
	Problems  []Trouble `json:"problems" nullable:"false" doc:"What has failed."`
	Well      []Trouble `json:"well" nullable:"false" doc:"What is well again."`
}

// A Trouble is a problem of a schedule or a queue, which may be over.
type Trouble struct {
	Subject string  `json:"subject" enum:"schedule,queue,clock" doc:"What has the problem."`
	Name    string  `json:"name" doc:"The name of the schedule or the queue; of the clock, database."`
	Problem string  `json:"problem" enum:"failed,timeout,lost,missed,late,slow,given-up,dead,behind,clock" doc:"What is wrong with a schedule, up to given-up, with a queue, or with the database's clock: it went back."`
	Detail  string  `json:"detail,omitempty" doc:"The problem in words."`
	Run     string  `json:"run_id,omitempty" doc:"The id of the run that failed."`
	Due     Instant `json:"due,omitzero" doc:"The slot that failed."`
	Times   int64   `json:"times" doc:"How often it failed since it was well."`
	Begun   Instant `json:"begun" doc:"When it failed first."`
	Last    Instant `json:"last" doc:"When it failed last."`
	Well    Instant `json:"well,omitzero" doc:"When it was well again."`
	Output  string  `json:"output,omitempty" doc:"The output of the run, of the first few problems: its beginning and its end."`
}
