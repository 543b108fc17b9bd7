package queue

import "strings"

// reservedPrefix begins the names of dbcron's own queues.
const reservedPrefix = "dbcron."

// Reserved reports whether dbcron itself uses a queue of that name, such as dbcron.notify, whose jobs
// are mails to send and commands to run. Programs that enqueue for others should refuse these.
func Reserved(name string) bool { return strings.HasPrefix(name, reservedPrefix) }
