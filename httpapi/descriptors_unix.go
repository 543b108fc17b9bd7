//go:build unix

package httpapi

import "golang.org/x/sys/unix"

// descriptors returns how many files and connections the process may have open.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 2 * fewestConnections
	}
	return int(min(uint64(limit.Cur), 2*maxConnections)) //nolint:unconvert // its type differs between systems
}
