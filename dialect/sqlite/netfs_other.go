//go:build !linux

package sqlite

// networkFileSystem cannot detect them on this system; docs/operations.md has a warning.
func networkFileSystem(string) error { return nil }
