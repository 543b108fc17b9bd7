//go:build !unix

package httpapi

// descriptors returns how many files and connections the process may have open: there is no such limit here.
func descriptors() int { return 2 * maxConnections }
