package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Rates of limits.
var (
	// LockLimit has others who draw wait: what is computed of the row is written before they
	// read it. The time is the one when it was asked for, and what was drawn while it was waited
	// for may be later.
	LockLimit = sqlrun.SQL("queue.lock-limit", `
		SELECT {us {now}}, COALESCE({us drawn_at}, 0), COALESCE(rate, 0), rate_per, burst FROM {prefix}queue_limit WHERE queue_id = :queue AND kind = :kind {locked}`)

	// SetDrawn runs with the row locked.
	SetDrawn = sqlrun.SQL("queue.set-drawn",
		`UPDATE {prefix}queue_limit SET drawn_at = {time :drawn} WHERE queue_id = :queue AND kind = :kind`)
)
