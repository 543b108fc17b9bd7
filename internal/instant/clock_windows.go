package instant

import "golang.org/x/sys/windows"

// Now returns the present instant.
func Now() Instant { return Instant(windows.DurationSinceBoot()) }
