//go:build unix && !linux

package instant

import "golang.org/x/sys/unix"

const clock = unix.CLOCK_MONOTONIC
