package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/sqlschema"
)

// descentHelp is the help about reverting migrations.
const descentHelp = `Going down drops tables and
columns with all that is in them. First it tells what would be lost, and asks; without a
terminal it needs --yes. While daemons or workers use the tables it is refused, unless
--force is given: stop them first, since they cannot work with other tables.`

// errLive is the error of a command that must not run while tables are in use.
var errLive = errors.New("these processes use the tables now")

// A descent says what a command that reverts migrations may do.
type descent struct{ yes, force bool }

func (d *descent) register(c *cobra.Command) {
	c.Flags().BoolVarP(&d.yes, "yes", "y", false, "do not ask before something is dropped")
	c.Flags().BoolVar(&d.force, "force", false, "also while daemons and workers use the tables")
}

// permitDescent shows what going down would delete, and returns an error unless that is permitted. It changes
// nothing. It does not see a process that starts between this check and the migration; such a process fails
// when its tables are gone.
func (p *program) permitDescent(ctx context.Context, db *dialect.DB, at, to int64, may descent) error {
	nodes, err := sqlschema.LiveNodes(ctx, db)
	if err != nil {
		return err
	}
	if len(nodes) > 0 && !may.force {
		return fmt.Errorf("%w: %s; nothing was changed: stop them, then try again. One that was killed counts until its lease has ended; --force does not wait",
			errLive, harmless(strings.Join(nodes, ", ")))
	}
	losses, err := sqlschema.Losses(ctx, db, to)
	if err != nil {
		return err
	}
	if len(losses) == 0 {
		fmt.Fprintf(p.err, "dbcron: going down from version %d to %d drops tables and columns; there are no rows in them\n", at, to)
	} else {
		fmt.Fprintf(p.err, "dbcron: going down from version %d to %d loses for good:\n", at, to)
	}
	for _, l := range losses {
		fmt.Fprintln(p.err, "    "+lossText(l))
	}
	return p.consent(may.yes, strconv.FormatInt(to, 10))
}

func lossText(l sqlschema.Loss) string {
	rows := counted(int(l.Rows), "row", "rows")
	if l.Rows == sqlschema.LossLimit {
		rows = "at least " + rows
	}
	if l.Columns == nil {
		return fmt.Sprintf("%s, with %s", l.Table, rows)
	}
	return fmt.Sprintf("of %s in %s: %s", rows, l.Table, strings.Join(l.Columns, ", "))
}
