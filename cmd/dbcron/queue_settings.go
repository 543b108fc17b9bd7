package main

import (
	"errors"
	"time"

	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// queueSettings are the settings of queues that have flags.
var queueSettings = admin.Settings()

// usualQueue returns a queue with default settings.
func usualQueue(name string) (q admin.Queue) {
	q.Name, q.State = name, "active"
	for i := range queueSettings {
		_ = queueSettings[i].Set(&q, "") // a test checks that the defaults are valid
	}
	return q
}

// notNegative parses a duration, and explains an error about its sign.
func notNegative(text string) (time.Duration, error) {
	if text == "" {
		return 0, errors.New("is empty")
	}
	return wire.Duration(text).Finite()
}
