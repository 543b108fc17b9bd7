package wire

// A Route says to which queue the jobs of a kind go that name no queue.
type Route struct {
	Kind  string `json:"kind" doc:"The kind of the jobs. * stands for all kinds that have no route of their own."`
	Queue string `json:"queue" doc:"The queue to which the jobs go."`
}

// A Subscription says that a queue gets a copy of each job that is published to a topic.
type Subscription struct {
	Topic string `json:"topic" doc:"The topic to which jobs are published."`
	Queue string `json:"queue" doc:"The queue that gets the copies."`
}

// Published is the result of publishing a job to a topic.
type Published struct {
	Group  string     `json:"group,omitempty" doc:"The id of the group of all copies. It is left out if no queue has subscribed."`
	Copies []Enqueued `json:"copies" nullable:"false" doc:"The copies, one for each queue that has subscribed."`
}
