package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dbcron/dbcron/dialect"
)

// ErrNoNode means that no process of that name takes part.
var ErrNoNode = errors.New("no live process with this name")

// Drain has processes take no new work: they begin no runs and no jobs, and end what
// they have begun. by says who wants it. The name is that of one, or what the names of
// several begin with before a colon: "web-1:4711" is all that is part of that process.
// It holds until [Undrain], or until the process ends; a process learns of it within
// its Poll, and a worker within a second. Drain returns the processes, or ErrNoNode;
// one that was drained before is left as it was.
func Drain(ctx context.Context, db *dialect.DB, name, by string) ([]Node, error) {
	return changeNodes(ctx, db, drain, name, by)
}

// Undrain has processes take work again. It returns them, or ErrNoNode.
func Undrain(ctx context.Context, db *dialect.DB, name string) ([]Node, error) {
	return changeNodes(ctx, db, undrain, name, "")
}

// changeNodes may meet a process that ends meanwhile: it has no work then, as was wanted.
func changeNodes(ctx context.Context, db *dialect.DB, change *dialect.Stmt, name, by string) ([]Node, error) {
	found, err := liveNodes(ctx, db, name)
	if err != nil {
		return nil, err
	}
	names := namesOf(found)
	err = changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
		_, err := tx.Exec(ctx, change, dialect.Args{"names": names, "by": shortReason(by)})
		return err
	})
	if err != nil {
		return nil, err
	}
	return liveNodes(ctx, db, name)
}

// Begun tells how many runs, and how many blocks and long jobs of queues, live processes have
// that they are to end: see [Drain] for the name.
func Begun(ctx context.Context, db *dialect.DB, name string) (runs, jobs int, err error) {
	found, err := liveNodes(ctx, db, name)
	if err == nil {
		err = db.Get(ctx, begunBy, dialect.Args{"names": namesOf(found)}, &runs, &jobs)
	}
	return runs, jobs, err
}

func namesOf(nodes []Node) []string {
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	return names
}

// liveNodes finds the processes that a name means, by name.
func liveNodes(ctx context.Context, db *dialect.DB, name string) (all []Node, err error) {
	const page = 1000
	for after := ""; ; {
		part, err := Nodes(ctx, db, after, page)
		if err != nil {
			return nil, err
		}
		for i := range part {
			if n := &part[i]; n.State == "live" && (n.Name == name || strings.HasPrefix(n.Name, name+":")) {
				all = append(all, *n)
			}
		}
		if len(part) < page {
			break
		}
		after = part[len(part)-1].Name
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNoNode, name)
	}
	return all, nil
}

// shortReason is a text that the column takes.
func shortReason(text string) string {
	text = reason(text)
	if runes := []rune(text); len(runes) > 100 {
		return string(runes[:100])
	}
	return text
}
