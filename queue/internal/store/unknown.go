package store

import (
	"encoding/json"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// What workers do, and what waits that none of them does.
var (
	// Announced lists what the live workers of queues do.
	Announced = sqlrun.SQL("queue.announced", `
		SELECT q.name, w.kinds FROM {prefix}queue_worker AS w
		JOIN {prefix}node AS n ON n.name = w.node JOIN {prefix}queue AS q ON q.queue_id = w.queue_id
		WHERE n.state = 'live' AND n.expire_at > {now} AND n.drained_at IS NULL AND q.state = 'active' ORDER BY q.name`)

	// OtherKinds counts the jobs of a block that are ready or due and not of some kinds, among the
	// first ones: others do not stay there.
	OtherKinds = sqlrun.SQL("queue.other-kinds", `
		SELECT f.kind, COUNT(*) FROM (
			SELECT kind FROM (SELECT kind FROM {prefix}job WHERE queue_id = :queue AND divided = :divided AND `+notSentinel+` ORDER BY queue_id, divided, priority, id LIMIT :limit) AS r
			UNION ALL SELECT kind FROM (SELECT kind FROM {prefix}job_delayed
				WHERE queue_id = :queue AND divided = :divided AND run_at <= {now} ORDER BY queue_id, divided, run_at, id LIMIT :limit) AS d) AS f
		WHERE f.kind NOT IN (:kinds) GROUP BY f.kind ORDER BY f.kind`)
)

// Kinds reads the list of kinds that a worker's row has. It returns false, which means all kinds,
// for no text, and for one that was written by hand and is not such a list.
func Kinds(text string) (kinds []string, ok bool) {
	if text == "" {
		return nil, false
	}
	return kinds, json.Unmarshal([]byte(text), &kinds) == nil
}
