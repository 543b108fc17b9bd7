package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/table"
)

// An outcome is what a changing command prints with -o json: what was done, to what, and the result.
type outcome map[string]any

// textOnly lists commands whose output is a text, a stream or another program's.
var textOnly = []string{
	"config check", "demo", "endpoint secret", "lock run", "migrate sql", "openapi", "schedule output", "serve", "worker exec",
}

// showAfter maps what a changing command is about to the operation whose answer, its new state, is added to the outcome.
var showAfter = map[string]string{"queue": "queue-status", "schedule": "schedule-status"}

// changing lists the last words of commands whose outcome includes that state.
var changing = []string{"add", "edit", "set", "pause", "resume", "resize"}

// say adds a value to the output of -o json.
func (p *program) say(name string, value any) {
	if p.outcome != nil {
		p.outcome[name] = value
		p.said = true
	}
}

// outcomes adds -o json to all changing commands below c.
func (p *program) outcomes(c *cobra.Command) {
	for _, sub := range c.Commands() {
		p.outcomes(sub)
	}
	path := actionOf(c)
	if c.HasSubCommands() || c.Flags().Lookup("output") != nil || slices.Contains(textOnly, path) {
		return
	}
	var output string
	c.Flags().StringVarP(&output, "output", "o", "text", "what has been done, as text, json or jsonl")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		switch output {
		case "text":
			return run(c, args)
		case "json", "jsonl":
			return p.telling(c, path, args, run)
		}
		return usagef("output %q is not known: use text, json or jsonl", output)
	}
}

// actionOf returns a command's words without the program's name.
func actionOf(c *cobra.Command) string {
	_, path, _ := strings.Cut(c.CommandPath(), " ")
	return path
}

// telling runs a command and prints the outcome instead of its text. After an error it does so if something was
// done before.
func (p *program) telling(c *cobra.Command, path string, args []string, run func(*cobra.Command, []string) error) error {
	out := p.out
	p.out, p.outcome = io.Discard, outcome{}
	defer func() { p.out, p.outcome = out, nil }()
	err := run(c, args)
	if err != nil && !p.said || p.outcome == nil {
		return err
	}
	p.outcome["action"] = path
	for i, name := range argumentsOf(c.Use) {
		if _, known := p.outcome[name]; !known && i < len(args) {
			p.outcome[name] = args[i]
		}
	}
	group, word, _ := strings.Cut(path, " ")
	if id := showAfter[group]; err == nil && id != "" && slices.Contains(changing, word) {
		shown := p.withAPI(c.Context(), func() (err error) {
			p.outcome[group], err = p.do(c.Context(), id, values{group: c.Flags().Arg(0)})
			return err
		})
		if shown != nil { // it may need an additional right
			delete(p.outcome, group)
			fmt.Fprintf(p.err, "dbcron: it was done, but what it is now is not known: %v\n", shown)
		}
	}
	if wrong := table.Encode(out, p.outcome); err == nil {
		err = wrong
	}
	return err
}

// argumentsOf returns the argument names in a usage line, up to the first flag.
func argumentsOf(use string) (names []string) {
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "[-") || strings.Contains(word, "flags") {
			break
		}
		word, _, _ = strings.Cut(strings.Trim(word, "{[]}"), "|")
		names = append(names, strings.ToLower(strings.TrimSuffix(word, "…")))
	}
	return names
}
