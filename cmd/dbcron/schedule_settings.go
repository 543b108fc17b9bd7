package main

import (
	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/scheduler"
)

type schedule = scheduler.Schedule

// settings are the settings of schedules that have flags.
var settings = scheduler.Settings()

// registerSettings adds a flag for each setting. It has no default, so it is known what was given, and an empty text
// restores the default. Its value is text, so that all invalid flags are reported together.
func registerSettings[T any](c *cobra.Command, all []setting.Setting[T]) {
	for i := range all {
		s := &all[i]
		c.Flags().Var(&rawText{shape: s.Shape}, s.Flag(), s.Usage())
		if s.Kind == setting.Flag && s.Usual == "false" {
			c.Flags().Lookup(s.Flag()).NoOptDefVal = "true"
		}
	}
}

// A rawText is a flag whose text is parsed later.
type rawText struct{ text, shape string }

func (t *rawText) String() string        { return t.text }
func (t *rawText) Set(text string) error { t.text = text; return nil }
func (t *rawText) Type() string          { return t.shape }
