// Package jobfield parses and checks fields of jobs, for the packages that read jobs from requests,
// forms and command lines.
package jobfield

import (
	"strings"
)

// reservedPrefix begins the names of dbcron's own queues.
const reservedPrefix = "dbcron."

// Reserved reports whether dbcron itself uses a queue of that name, such as dbcron.notify, whose jobs
// are mails to send and commands to run. Programs that enqueue for others should refuse these.
func Reserved(queue string) bool { return strings.HasPrefix(queue, reservedPrefix) }
