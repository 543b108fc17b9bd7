package main

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/config"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
)

// Suggestions for mistyped commands, flags, and names in the tables.

// didYouMean returns the end of an error about an unknown word; "" if no known word is near.
func didYouMean(word string, known []string) string {
	if near := plain.Nearest(word, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// unknownCommand returns the error of a command with subcommands that was given an unknown word.
func unknownCommand(c *cobra.Command, word string) error {
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	return usagef("unknown command %q for %q%s", word, c.CommandPath(), didYouMean(word, known))
}

// flagError adds a suggestion to the error about an unknown flag, and has one about a value begin with the flag and name no function.
func flagError(c *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		return usagef("--%s: %v", value.GetFlag().Name, config.WrongValue(value.GetFlag().Value.Type(), value.GetValue(), value.Unwrap()))
	}
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return usagef("%v", err)
	}
	var known, initials []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		known = append(known, "--"+f.Name)
		short := ""
		for word := range strings.SplitSeq(f.Name, "-") {
			short += word[:1]
		}
		if short == name || strings.HasPrefix(f.Name, name+"-") { // --tz, --time
			initials = append(initials, "--"+f.Name)
		}
	})
	suggestion := didYouMean("--"+name, known)
	if suggestion == "" && len(initials) > 0 {
		suggestion = "; did you mean " + plain.Or(initials) + "?"
	}
	return usagef("%v%s", err, suggestion)
}

// A nameList is the operation that lists the names of a kind, perhaps of those in a state, and the field of an entry that has one.
type nameList struct{ operation, field, state string }

// nameLists list the names of each kind: see kindNamed.
var nameLists = map[string][]nameList{
	"queue":    {{"list-queues", "Name", ""}},
	"schedule": {{"list-schedules", "Name", ""}},
	"lock":     {{"list-locks", "Name", ""}},
	"group":    {{"list-groups", "ID", queue.GroupOpen}, {"list-groups", "ID", queue.GroupSealed}},
	"route":    {{"list-routes", "Kind", ""}},
	"topic":    {{"list-subscriptions", "Topic", ""}},
	"finding":  {{"list-findings", "ID", ""}},
	"token":    nil, // no operation lists them: see names
}

// maxNames limits the names that are read, and nameTime the time: whoever presses a key is waiting.
const (
	maxNames = 1000
	nameTime = 2 * time.Second
)

// names lists the names of a kind. It is best effort: without a database or a daemon there are none.
func (p *program) names(ctx context.Context, kind string) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	p.connectTimeout, p.reading = 0, true
	if kind == "token" {
		_ = p.with(ctx, func(db *dialect.DB) error {
			all, err := httpapi.NewTokens(db).List(ctx)
			for i := range all {
				names = append(names, all[i].Name)
			}
			return err
		})
		return names
	}
	_ = p.withAPI(ctx, func() error {
		for _, l := range nameLists[kind] {
			given := values{}
			if l.state != "" {
				given["state"] = l.state
			}
			rows, _, err := p.list(ctx, l.operation, given, maxNames, false)
			if err != nil {
				return err
			}
			for i, all := 0, reflect.ValueOf(rows); i < all.Len(); i++ {
				names = append(names, all.Index(i).FieldByName(l.field).String())
			}
		}
		return nil
	})
	return slices.Compact(names)
}

// meant suggests a name if the first argument was not found.
func (p *program) meant(ctx context.Context, c *cobra.Command) string {
	args := c.Flags().Args()
	if len(args) == 0 {
		return ""
	}
	names := p.names(context.WithoutCancel(ctx), kindNamed(c, 0))
	if slices.Contains(names, args[0]) {
		return "" // something else was not found
	}
	return didYouMean(args[0], names)
}
