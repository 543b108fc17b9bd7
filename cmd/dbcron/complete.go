package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/scheduler"
)

// Shell completion: cobra knows commands and flags, the tables have names, and a flag's usage lists its
// words.

// namedByFlags maps flags to the kinds of names they take.
var namedByFlags = map[string]string{
	"queue": "queue", "job-queue": "queue", "callback-queue": "queue", "from": "queue", "to": "queue",
	"on-success": "schedule", "on-failure": "schedule", "group": "group",
}

// namedByWords maps placeholders in a usage line to kinds of names; NAME is what the command's group is
// about.
var namedByWords = map[string]string{"queue": "queue", "topic": "topic", "kind": "route", "finding": "finding"}

// kindNamed returns the kind of name of an argument; "": nothing that can be listed.
func kindNamed(c *cobra.Command, at int) string {
	words := argumentsOf(c.Use)
	switch group := c.Parent(); {
	case group == nil || len(words) == 0:
		return ""
	case strings.HasSuffix(strings.Fields(c.Use)[1], "…]"): // any number of arguments
		at = 0
	case at >= len(words):
		return ""
	case words[at] == "name" && group.Name() == "job":
		return "queue"
	case words[at] == "name" && (c.Name() == "add" || c.Name() == "create"):
		return "" // it does not exist yet
	case words[at] == "kind" && group.Name() != "route":
		return ""
	}
	switch word := words[at]; {
	case word == "name" || word == "id" && c.Parent().Name() == "group":
		if _, listed := nameLists[c.Parent().Name()]; listed {
			return c.Parent().Name()
		}
		return ""
	default:
		return namedByWords[word]
	}
}

// complete adds completion of names and words to c and the commands below it.
func (p *program) complete(c *cobra.Command) {
	if c.Use != "" && len(argumentsOf(c.Use)) > 0 && c.Parent() != nil {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return p.names(c.Context(), kindNamed(c, len(args))), cobra.ShellCompDirectiveNoFileComp
		}
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if kind := namedByFlags[f.Name]; kind != "" && (f.Name != "from" && f.Name != "to" || c.Name() == "move") {
			complete(c, f.Name, func(ctx context.Context) []string { return p.names(ctx, kind) })
		} else if words := flagWords(c, f); len(words) > 0 {
			complete(c, f.Name, func(context.Context) []string { return words })
		}
	})
	for _, sub := range c.Commands() {
		p.complete(sub)
	}
}

func complete(c *cobra.Command, flag string, words func(context.Context) []string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return words(c.Context()), cobra.ShellCompDirectiveNoFileComp
	}) // fails only for unknown flags
}

// worded lists the flags that take one of the words listed in their usage.
var worded = []string{"output", "state", "scope", "priority", "job-priority", "format", "role", "only", "by", "log-format", "dst"}

var (
	listOfWords = pattern.Lazy(`[a-z]+(?:(?:, | or | and )[a-z]+)+`)
	between     = pattern.Lazy(`, | or | and `)
)

// flagWords returns the words that a flag takes; none: it takes any value.
func flagWords(c *cobra.Command, f *pflag.Flag) []string {
	shape, usage := pflag.UnquoteUsage(f)
	switch {
	case strings.Contains(shape, "|"):
		return strings.Split(shape, "|")
	case f.Name == "state" && c.Name() == "history":
		return scheduler.RunStates
	case f.Name == "by" && c.Name() != "stats", !slices.Contains(worded, f.Name):
		return nil
	}
	longest := ""
	for _, list := range listOfWords().FindAllString(usage, -1) {
		if len(list) > len(longest) {
			longest = list
		}
	}
	if longest == "" {
		return nil
	}
	return between().Split(longest, -1)
}
