package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// ErrNoNode means that there is no live process of that name.
var ErrNoNode = errors.New("scheduler: no live process with this name")

// Drain stops processes from taking new work: they begin no runs or jobs, and finish those they
// have begun. by says who asked for it. The name is that of one process, or the part before a colon
// that several share: "web-1:4711" means everything in that process. Draining lasts until
// [Undrain], or until the process ends. A scheduler notices within its Poll, a worker within a
// second. Drain returns the processes, or ErrNoNode. It leaves a process that is drained already
// as it is.
func Drain(ctx context.Context, db *dialect.DB, name, by string) ([]Node, error) {
	return changeNodes(ctx, db, drain, name, by)
}

// Undrain lets processes take work again. It returns them, or ErrNoNode.
func Undrain(ctx context.Context, db *dialect.DB, name string) ([]Node, error) {
	return changeNodes(ctx, db, undrain, name, "")
}

// changeNodes tolerates a process that ends meanwhile: it takes no work any more either.
func changeNodes(ctx context.Context, db *dialect.DB, change *sqlrun.Stmt, name, by string) ([]Node, error) {
	found, err := liveNodes(ctx, db, name)
	if err != nil {
		return nil, err
	}
	names := namesOf(found)
	err = changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
		_, err := tx.Exec(ctx, change, sqlrun.Args{"names": names, "by": shortReason(by)})
		return err
	})
	if err != nil {
		return nil, err
	}
	return liveNodes(ctx, db, name)
}

// NoteProblem records what fails in a process now, in its own words, for those who look at it from outside; "" means nothing. It
// reports whether the process has a row. The name is that of one of its parts, or of the process.
func NoteProblem(ctx context.Context, db *dialect.DB, name, problem string) (bool, error) {
	process := (&Node{Name: name}).Process()
	changed, err := db.Exec(ctx, noteProblem, sqlrun.Args{
		"from": process + ":", "to": process + string(':'+1), "problem": plain.Cut(reason(problem), 1000),
	})
	return changed > 0, err
}

// Begun returns the work that live processes must still finish: their runs, and their blocks and
// long jobs of queues. The name is as in [Drain].
func Begun(ctx context.Context, db *dialect.DB, name string) (runs, jobs int, err error) {
	found, err := liveNodes(ctx, db, name)
	if err == nil {
		err = db.Get(ctx, begunBy, sqlrun.Args{"names": namesOf(found)}, &runs, &jobs)
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

// liveNodes finds the live processes that a name stands for, ordered by name.
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

// shortReason cuts a text to fit the column.
func shortReason(text string) string {
	text = reason(text)
	if runes := []rune(text); len(runes) > 100 {
		return string(runes[:100])
	}
	return text
}
