package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/internal/plain"
)

const forever = "forever"

// A grace is how long running work may go on when the process stops. The longest duration means forever.
type grace time.Duration

func (g *grace) String() string {
	if time.Duration(*g) == plain.LongestDuration {
		return forever
	}
	return time.Duration(*g).String()
}

func (g *grace) Type() string { return "duration" }

func (g *grace) Set(text string) error {
	if text == forever {
		*g = grace(plain.LongestDuration)
		return nil
	}
	d, err := time.ParseDuration(text)
	*g = grace(min(d, plain.LongestDuration))
	return err
}

// graceFlag adds --grace.
func graceFlag(flags *pflag.FlagSet, to *time.Duration, usage string) {
	*to = 30 * time.Second
	flags.Var((*grace)(to), "grace", usage)
}
