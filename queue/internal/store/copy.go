package store

// JobColumns are those of the table of ready jobs, in the order that copyRows has
// them.
var JobColumns = []string{
	"queue_id", "divided", "priority", "id", "kind", "job_key", "payload", "payload_bin", "max_attempts", "timeout", "trace", "endpoint",
}
