package measure

import (
	"strconv"
	"strings"

	"github.com/dbcron/dbcron/internal/smallfile"
)

// A load is the processor time of the host since it started.
type load struct{ busy, all float64 }

// loadNow reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
// Everything but idle and iowait is busy; time stolen by a hypervisor was not available either.
func loadNow() (l load) {
	text, err := smallfile.Read("/proc/stat", 1<<20)
	if err != nil {
		return l
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(line) {
		if i == 0 || i > 8 {
			continue
		}
		n, _ := strconv.ParseFloat(word, 64)
		l.all += n
		if i != 4 && i != 5 {
			l.busy += n
		}
	}
	return l
}
