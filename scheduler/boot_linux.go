package scheduler

import (
	"os"
	"strings"
)

// bootID returns the kernel's identifier of the host's present start. It is the same in all
// containers of the host.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
