package plain

import (
	"fmt"
	"strconv"
	"strings"
)

// Pids names some processes, of which there may be many.
func Pids(pids []int) string {
	const most = 10
	named := make([]string, min(len(pids), most))
	for i := range named {
		named[i] = strconv.Itoa(pids[i])
	}
	text := strings.Join(named, ", ")
	switch more := len(pids) - most; {
	case len(pids) == 1:
		return "process " + text
	case more > 0:
		text += fmt.Sprintf(" and %d more", more)
	}
	return "processes " + text
}
