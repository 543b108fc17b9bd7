package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
)

// A durationFlag is a flag with a length of time, as [wire.Duration] has it. The longest duration stands for one without an end.
type durationFlag struct {
	to      *time.Duration
	forever bool // whether it may be without an end
}

func (f *durationFlag) String() string {
	switch {
	case *f.to == 0: // as the flag's usage says
		return ""
	case f.forever && *f.to == plain.LongestDuration:
		return string(wire.Forever)
	}
	return string(wire.DurationOf(*f.to))
}

func (f *durationFlag) Type() string { return "duration" }

func (f *durationFlag) Set(text string) error {
	d, err := wire.Duration(text).Time()
	switch {
	case err != nil:
		return err
	case text == "":
		return errors.New("it is empty; write none")
	case d < 0 && !f.forever:
		return errors.New("it has to end; write for example 90s, 1h30m or 30d")
	case d < 0:
		d = plain.LongestDuration
	}
	*f.to = d
	return nil
}

// durationVar adds a flag with a length of time.
func durationVar(flags *pflag.FlagSet, to *time.Duration, name string, usual time.Duration, usage string) {
	*to = usual
	flags.Var(&durationFlag{to: to}, name, usage)
}

// graceFlag adds --grace: how long running work may go on when the process stops.
func graceFlag(flags *pflag.FlagSet, to *time.Duration, usage string) {
	*to = 30 * time.Second
	flags.Var(&durationFlag{to: to, forever: true}, "grace", usage)
}
