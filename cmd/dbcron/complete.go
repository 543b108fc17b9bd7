package main

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/scheduler"
)

// What the shell completes: commands and flags are cobra's, names are in the tables, and the
// words that a flag takes are in its usage.

// namedByFlags are the kinds of names that flags take.
var namedByFlags = map[string]string{
	"queue": "queue", "job-queue": "queue", "callback-queue": "queue", "from": "queue", "to": "queue",
	"on-success": "schedule", "on-failure": "schedule", "group": "group",
}

// namedByWords are the kinds of names that words in a line of usage stand for; a NAME is what
// the command's group is about.
var namedByWords = map[string]string{"queue": "queue", "topic": "topic", "kind": "route"}

// kindNamed says what the argument at a place names; empty: nothing that there is a list of.
func kindNamed(c *cobra.Command, at int) string {
	words := argumentsOf(c.Use)
	switch group := c.Parent(); {
	case group == nil || len(words) == 0:
		return ""
	case strings.HasSuffix(strings.Fields(c.Use)[1], "…]"): // as many as one likes
		at = 0
	case at >= len(words):
		return ""
	case words[at] == "name" && group.Name() == "job":
		return "queue"
	case words[at] == "name" && (c.Name() == "add" || c.Name() == "create"):
		return "" // which is not there yet
	case words[at] == "kind" && group.Name() != "route":
		return ""
	}
	switch word := words[at]; {
	case word == "name" || word == "id" && c.Parent().Name() == "group":
		if nameLists[c.Parent().Name()] != nil {
			return c.Parent().Name()
		}
		return ""
	default:
		return namedByWords[word]
	}
}

// complete has the shell complete names and words of c and the commands below it.
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
	}) // which fails only for flags that are not there
}

// worded are the flags that take one of some words, which their usage lists.
var worded = []string{"output", "state", "scope", "priority", "job-priority", "format", "role", "only", "by", "log-format", "dst"}

var (
	listOfWords = regexp.MustCompile(`[a-z]+(?:(?:, | or | and )[a-z]+)+`)
	between     = regexp.MustCompile(`, | or | and `)
)

// flagWords are the words that a flag takes; none: it takes others than a few.
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
	for _, list := range listOfWords.FindAllString(usage, -1) {
		if len(list) > len(longest) {
			longest = list
		}
	}
	if longest == "" {
		return nil
	}
	return between.Split(longest, -1)
}
