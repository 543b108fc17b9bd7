package scheduler

import "golang.org/x/sys/unix"

// bootID returns the kernel's identifier of the host's present start.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
