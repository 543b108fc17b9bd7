package wire

import (
	"fmt"
	"slices"
	"strings"
)

// priorityNames are the names of priorities, indexed by number: queue.Urgent is 1.
var priorityNames = []string{"", "urgent", "normal", "low", "idle"}

// PriorityName returns the name of a priority of package queue: urgent, normal, low or idle. It returns
// the empty text for any other number.
func PriorityName(n int) string {
	if n < 0 || n >= len(priorityNames) {
		return ""
	}
	return priorityNames[n]
}

// ParsePriority returns the priority that a name means.
func ParsePriority(name string) (int, error) {
	if n := slices.Index(priorityNames, name); n > 0 {
		return n, nil
	}
	return 0, fmt.Errorf("%q is not known; use %s", name, strings.Join(priorityNames[1:], ", "))
}
