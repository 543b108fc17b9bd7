package instant

import "golang.org/x/sys/windows"

// system reads the host's clock.
func system() Instant { return Instant(windows.DurationSinceBoot()) }
