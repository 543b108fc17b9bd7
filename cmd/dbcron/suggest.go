package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
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

// flagError adds a suggestion to the error about an unknown flag.
func flagError(c *cobra.Command, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return usagef("%v", err)
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	return usagef("%v%s", err, didYouMean("--"+name, known))
}

// nameLists list the names of each kind: see kindNamed.
var nameLists = map[string]func(context.Context, *dialect.DB) ([]string, error){
	"queue": func(ctx context.Context, db *dialect.DB) (names []string, err error) {
		c, err := admin.New(db, admin.Options{})
		if err != nil {
			return nil, err
		}
		all, err := c.Queues(ctx, "", maxNames)
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names, err
	},
	"schedule": func(ctx context.Context, db *dialect.DB) (names []string, err error) {
		all, err := scheduler.List(ctx, db, "", maxNames)
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names, err
	},
	"lock": func(ctx context.Context, db *dialect.DB) (names []string, err error) {
		l, err := lock.New(db, lock.Options{})
		if err != nil {
			return nil, err
		}
		all, err := l.List(ctx, "", 0, maxNames)
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names, err
	},
	"group": func(ctx context.Context, db *dialect.DB) (names []string, err error) {
		c, err := queue.New(db, queue.Options{})
		if err != nil {
			return nil, err
		}
		for _, state := range []string{queue.GroupOpen, queue.GroupSealed} {
			all, err := c.Groups(ctx, state, 0, maxNames)
			if err != nil {
				return nil, err
			}
			for i := range all {
				names = append(names, strconv.FormatInt(all[i].ID, 10))
			}
		}
		return names, nil
	},
	"route": func(ctx context.Context, db *dialect.DB) (names []string, err error) {
		c, err := admin.New(db, admin.Options{})
		if err != nil {
			return nil, err
		}
		all, err := c.Routes(ctx, "", maxNames)
		for i := range all {
			names = append(names, all[i].Kind)
		}
		return names, err
	},
	"topic": func(ctx context.Context, db *dialect.DB) (names []string, err error) {
		c, err := admin.New(db, admin.Options{})
		if err != nil {
			return nil, err
		}
		all, err := c.Subscriptions(ctx, admin.Subscription{}, maxNames)
		for i := range all {
			names = append(names, all[i].Topic)
		}
		return slices.Compact(names), err
	},
	"token": func(ctx context.Context, db *dialect.DB) (names []string, err error) {
		all, err := httpapi.NewTokens(db).List(ctx)
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names, err
	},
}

// maxNames limits the names that are read, and nameTime the time: whoever presses a key is waiting.
const (
	maxNames = 1000
	nameTime = 2 * time.Second
)

// names lists the names of a kind. It is best effort: without a database there are none.
func (p *program) names(ctx context.Context, kind string) (names []string) {
	list := nameLists[kind]
	if list == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	p.connectTimeout, p.reading = 0, true
	_ = p.with(ctx, func(db *dialect.DB) (err error) {
		names, err = list(ctx, db)
		return err
	})
	return names
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
