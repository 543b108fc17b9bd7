// Package jobfield has what several packages say about a job: whose queue it is in, its result, and its trace (W3C's
// Trace Context).
package jobfield

import (
	"fmt"
	"strings"
)

// reservedPrefix begins the names of dbcron's own queues.
const reservedPrefix = "dbcron."

// Reserved reports whether dbcron itself uses a queue of that name, such as dbcron.notify, whose jobs
// are mails to send and commands to run. Programs that enqueue for others should refuse these.
func Reserved(queue string) bool { return strings.HasPrefix(queue, reservedPrefix) }

// CheckTarget refuses a queue of dbcron's own as the target of what leads jobs into a queue or out of it: routes, topics,
// endpoints, schedules and moves. Whoever may use those could otherwise send mail and run commands, or read them.
func CheckTarget(queue string) error {
	if Reserved(queue) {
		return fmt.Errorf("%q is dbcron's own: what is in it is sent or run, and nothing else may lead there; choose a queue whose name does not begin with %s",
			queue, reservedPrefix)
	}
	return nil
}
