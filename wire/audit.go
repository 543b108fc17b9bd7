package wire

// An AuditEntry is what an operator did from the command line, over the API or in the dashboard.
type AuditEntry struct {
	ID     string  `json:"id" table:"-" doc:"The id of the entry. Ids grow with time."`
	At     Instant `json:"at" doc:"When it was done."`
	Actor  string  `json:"actor" doc:"Who did it: the name of a token, a user of a trusted proxy, user@host of a command line, or this host."`
	Login  string  `json:"login" table:"-" enum:"token,proxy,os,none" doc:"How the actor is known: by a token, by a trusted proxy, by the operating system of the command line, which says so itself, or not at all."`
	Source string  `json:"source" enum:"cli,api,dashboard" doc:"Where it was done."`
	Action string  `json:"action" doc:"What was done, such as queue.pause."`
	Object string  `json:"object,omitempty" doc:"What it was done to, such as the name of a queue. It is left out if it was not done to one thing."`
	Count  int     `json:"count" doc:"The number of jobs or other things to which it was done."`
	Detail string  `json:"detail,omitempty" table:",rare" doc:"Why it was done, or to which of many: a reason or a filter."`
}
