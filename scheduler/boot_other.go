//go:build !linux && !darwin

package scheduler

// bootID returns "": the system has no such identifier.
func bootID() string { return "" }
