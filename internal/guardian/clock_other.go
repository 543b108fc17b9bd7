//go:build unix && !linux

package guardian

import "golang.org/x/sys/unix"

const clock = unix.CLOCK_MONOTONIC
