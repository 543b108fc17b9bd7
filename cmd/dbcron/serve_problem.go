package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/scheduler"
)

// problemEvery is the time between two looks at what fails in a daemon.
const problemEvery = 5 * time.Second

// logProblem says why nobody gets the log now, or returns "".
func (p *program) logProblem() string {
	if o := p.outlet(); o != nil {
		return o.Problem()
	}
	return ""
}

// problem says what fails in this process now, or returns "".
func (p *program) problem() string {
	var parts []string
	if text := p.logProblem(); text != "" {
		parts = append(parts, text)
	}
	if text := trouble.Lasting(); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// noteProblems records for dbcron doctor what fails in this process, until ctx ends. While all is well it writes nothing.
func (p *program) noteProblems(ctx context.Context, db *dialect.DB, node string, log *slog.Logger) {
	noted := ""
	for range pace.Ticks(ctx, problemEvery) {
		text := p.problem()
		if text == noted {
			continue
		}
		trying, cancel := context.WithTimeout(ctx, problemEvery)
		there, err := scheduler.NoteProblem(trying, db, node, text)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			log.Debug("what fails here cannot be recorded for doctor", "err", err)
		case there:
			noted = text
		}
	}
}
