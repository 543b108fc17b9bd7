package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/docs"
)

// help makes the command that explains commands and prints the pages of the documentation, which a binary alone has nowhere else.
func (p *program) help(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | PAGE]",
		Short: "Explain a command, or print a page of the documentation",
		Long: `Explain a command, or print a page of the documentation, in Markdown. A page that
has the name of a command ends in .md: dbcron help queue.md.

Pages: ` + wrapped(docs.Pages(), 80),
		Example: `  dbcron help schedule add
  dbcron help grants`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			c, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, sub.Name())
				}
			}
			if len(args) == 0 {
				names = append(names, docs.Pages()...)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err == nil && len(rest) == 0 {
				c.InitDefaultHelpFlag()
				return c.Help()
			}
			if len(args) == 1 {
				if text, found := docs.Page(args[0]); found {
					_, err := fmt.Fprint(p.out, text)
					return err
				}
			}
			return usagef("no command and no page is called %q; dbcron help help lists the pages", strings.Join(args, " "))
		},
	}
}

// wrapped joins names by commas, in lines of at most so many characters.
func wrapped(names []string, width int) string {
	var b strings.Builder
	line := len("Pages: ")
	for i, name := range names {
		if i > 0 {
			b.WriteString(",")
			if line+len(name)+2 > width {
				b.WriteString("\n")
				line = 0
			} else {
				b.WriteString(" ")
				line += 2
			}
		}
		b.WriteString(name)
		line += len(name)
	}
	return b.String() + "."
}
