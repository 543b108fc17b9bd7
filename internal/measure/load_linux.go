package measure

import (
	"os"
	"strconv"
	"strings"
)

// A load is what the host's processors have done since it started.
type load struct{ busy, all float64 }

// loadNow reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq,
// steal. All but idle and iowait is work; of what a hypervisor took there was none to have.
func loadNow() (l load) {
	text, err := os.ReadFile("/proc/stat")
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
