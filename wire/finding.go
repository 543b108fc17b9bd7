package wire

// A Finding is something that is wrong with the work, as dbcron doctor and the dashboard's overview show it.
type Finding struct {
	ID     string  `json:"id,omitempty" doc:"What the finding is acknowledged by. It changes with the finding. It is left out of one that counts others, which nobody can acknowledge."`
	About  string  `json:"about" enum:"schedules,runs,queues,endpoints,processes,files,rows,clock" doc:"What is wrong."`
	Failed bool    `json:"failed" doc:"Whether it has failed; otherwise it is a warning."`
	What   string  `json:"what" doc:"What is wrong, in a few words."`
	Why    string  `json:"why,omitempty" doc:"The cause, as far as it is known."`
	Do     string  `json:"do,omitempty" doc:"What to do about it."`
	Since  Instant `json:"since,omitzero" doc:"Since when it is so."`

	AcknowledgedBy string  `json:"acknowledged_by,omitempty" doc:"Who has acknowledged the finding."`
	AcknowledgedAt Instant `json:"acknowledged_at,omitzero" doc:"When that was."`
	Reason         string  `json:"reason,omitempty" doc:"Why the finding is acknowledged."`
}
