package store

import "github.com/dbcron/dbcron/dialect"

// ReadClock reads the time, in µs since 1970.
var ReadClock = dialect.SQL("queue.clock", `SELECT {us {now}}`)
