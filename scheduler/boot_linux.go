package scheduler

import (
	"strings"

	"github.com/dbcron/dbcron/internal/smallfile"
)

// bootID returns the kernel's identifier of the host's present start. It is the same in all
// containers of the host.
func bootID() string {
	data, err := smallfile.Read("/proc/sys/kernel/random/boot_id", 4096)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
