package store

import (
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// ReadClock returns the database's time, in µs since 1970.
var ReadClock = sqlrun.SQL("queue.clock", `SELECT {us {now}}`)
