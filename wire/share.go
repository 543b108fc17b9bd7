package wire

// A Share is how many turns a tenant of a fair queue has while one without a share has one.
type Share struct {
	Queue  string `json:"queue" doc:"The queue."`
	Tenant string `json:"tenant" doc:"The tenant of the jobs."`
	Weight int    `json:"weight" doc:"How many turns it has while a tenant without a share has one."`
}

// A ShareChange sets the share of a tenant.
type ShareChange struct {
	Weight int `json:"weight" minimum:"1" maximum:"1000" doc:"How many turns it has while a tenant without a share has one."`
}
