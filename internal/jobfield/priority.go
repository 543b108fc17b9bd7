package jobfield

import (
	"fmt"
	"strconv"
	"strings"
)

// priorityNames are the names of priorities, indexed by number: queue.Urgent is 1.
var priorityNames = []string{"", "urgent", "normal", "low", "idle"}

// PriorityName returns the name of a priority, or "" for an invalid one.
func PriorityName(n int) string {
	if n < 0 || n >= len(priorityNames) {
		return ""
	}
	return priorityNames[n]
}

// ParsePriority parses the name of a priority, or its number.
func ParsePriority(text string) (int, error) {
	for n := 1; n < len(priorityNames); n++ {
		if text == priorityNames[n] || text == strconv.Itoa(n) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%q is not known; use %s, or 1 to 4", text, strings.Join(priorityNames[1:], ", "))
}
