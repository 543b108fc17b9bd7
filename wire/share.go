package wire

// A Share is how many turns a tenant of a fair queue has while one without a share has one.
type Share struct {
	Queue  string `json:"queue" doc:"The queue."`
	Tenant string `json:"tenant" doc:"The tenant of the jobs."`
	Weight int    `json:"weight" doc:"How many turns it has while a tenant without a share has one."`
}

// A Tenant is a tenant that has jobs ready in a queue.
type Tenant struct {
	Name   string  `json:"name" doc:"The tenant of the jobs; empty for those that name none."`
	Ready  int     `json:"ready" doc:"The number of its ready jobs, of those that were looked at."`
	Oldest float64 `json:"oldest_ready_seconds" doc:"How long the oldest of them has waited, in seconds."`
	Weight int     `json:"weight" doc:"How many turns it has while a tenant without a share has one."`
}

// A ShareChange sets the share of a tenant.
type ShareChange struct {
	Weight int `json:"weight" minimum:"1" maximum:"1000" doc:"How many turns it has while a tenant without a share has one."`
}
