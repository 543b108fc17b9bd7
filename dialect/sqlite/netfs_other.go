//go:build !linux

package sqlite

// networkFileSystem cannot tell here; docs/operations.md warns.
func networkFileSystem(string) error { return nil }
