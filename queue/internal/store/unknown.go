package store

import (
	"encoding/json"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Kinds that workers handle, and waiting jobs that none of them handles.
var (
	// Announced lists the kinds that the live workers of some queues handle.
	Announced = sqlrun.SQL("queue.announced", `
		SELECT q.name, w.kinds FROM {prefix}queue_worker AS w
		JOIN {prefix}node AS n ON n.name = w.node JOIN {prefix}queue AS q ON q.queue_id = w.queue_id
		WHERE n.state = 'live' AND n.expire_at > {now} AND n.drained_at IS NULL AND q.state = 'active' ORDER BY q.name`)

	// OtherKinds counts the jobs of a block that are ready or due and not of some kinds, among
	// the first jobs: those of handled kinds do not stay there.
	OtherKinds = sqlrun.SQL("queue.other-kinds", `
		SELECT f.kind, COUNT(*) FROM (
			SELECT kind FROM (SELECT kind FROM {prefix}job WHERE queue_id = :queue AND divided = :divided AND `+notSentinel+` ORDER BY queue_id, divided, priority, id LIMIT :limit) AS r
			UNION ALL SELECT kind FROM (SELECT kind FROM {prefix}job_delayed
				WHERE queue_id = :queue AND divided = :divided AND run_at <= {now} ORDER BY queue_id, divided, run_at, id LIMIT :limit) AS d) AS f
		WHERE f.kind NOT IN (:kinds) GROUP BY f.kind ORDER BY f.kind`)
)

// Kinds parses the list of kinds in a worker's row. It returns false, which means all kinds, if
// the text is empty, or was written by hand and is not such a list.
func Kinds(text string) (kinds []string, ok bool) {
	if text == "" {
		return nil, false
	}
	return kinds, json.Unmarshal([]byte(text), &kinds) == nil
}
