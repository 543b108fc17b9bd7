package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dbcron/dbcron/internal/ops/progress"
)

// errDeclined is the error of a command that the user did not confirm.
var errDeclined = errors.New("nothing was changed")

// begin starts showing the progress of a task; the caller must end it.
func (p *program) begin(ctx context.Context, t progress.Task) *progress.Progress {
	return progress.Begin(ctx, &p.err, isTerminal(p.err), t)
}

// answer asks a question at the terminal and returns the line typed. The end of the input is an empty answer,
// which agrees to nothing.
func (p *program) answer(question string) string {
	fmt.Fprintf(p.err, "dbcron: %s ", question)
	line, _ := bufio.NewReader(p.in).ReadString('\n')
	return strings.TrimSpace(line)
}

// consent permits a command that is hard to undo: if --yes was given, or if somebody types word at the
// terminal. Without a terminal it refuses.
func (p *program) consent(yes bool, word string) error {
	switch {
	case yes:
		return nil
	case !isTerminal(p.in):
		return usagef("standard input is not a terminal: nothing was changed; --yes goes on without asking")
	case p.answer("to go on, type "+word+":") != word:
		return errDeclined
	}
	return nil
}
