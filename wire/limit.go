package wire

// A Limit bounds how many jobs of a queue, of one of its kinds, or of each tenant, run at a time and begin in a time, over all
// workers together.
type Limit struct {
	Queue   string `json:"queue" doc:"The queue whose jobs are limited."`
	Kind    string `json:"kind,omitempty" doc:"The kind of the jobs that are limited. It is left out if those of all kinds are, together."`
	Tenant  string `json:"tenant,omitempty" table:",rare" doc:"The tenant whose jobs are limited; *: those of each tenant that has no limit of its own. It is left out of other limits."`
	Running Count  `json:"running" doc:"The number of jobs that may run at a time, or none if it is not limited."`
	Rate    string `json:"rate" doc:"The number of jobs that may begin in a time, such as 100/m or 5/1m30s, or none if it is not limited."`
	Burst   int    `json:"burst" doc:"The number of jobs that may begin at once after a pause."`
	Permits int    `json:"permits" doc:"The number of permits to run a job that workers have."`
	Waiting bool   `json:"waiting" doc:"Whether a worker waits for a permit."`
}

// A LimitChange is a change of a limit. What is left out stays.
type LimitChange struct {
	Running *Count  `json:"running,omitempty" maxLength:"40" doc:"The number of jobs that may run at a time, up to 10000, or none for any number."`
	Rate    *string `json:"rate,omitempty" maxLength:"40" doc:"The number of jobs that may begin in a time, such as 100/m or 5/1m30s, or none for any number." example:"100/m"`
	Burst   *int    `json:"burst,omitempty" minimum:"1" maximum:"100000" doc:"The number of jobs that may begin at once after a pause, at least what comes in 0.1s."`
}
