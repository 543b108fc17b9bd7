//go:build !linux && !darwin

package scheduler

// bootID is not known here.
func bootID() string { return "" }
