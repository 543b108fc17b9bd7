package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/ops/progress"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/sqlschema"
)

func (p *program) migrate() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Make and change the tables",
		Long: `Make and change dbcron's tables. Any number of processes may migrate at once:
one works, the others wait. dbcron help grants lists the rights that it takes.`,
	}
	var output string
	status := &cobra.Command{
		Use:     "status",
		Short:   "List the migrations, and which have been run",
		Example: `  dbcron migrate status`,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.migrating(c.Context(), func(ctx context.Context, db *dialect.DB) error { return p.migrateStatus(ctx, db, output) })
		},
	}
	outputFlag(status, &output)
	var down, to descent
	descend := &cobra.Command{
		Use:     "down",
		Example: `  dbcron migrate down`,
		Short:   "Revert the newest migration; the tables that it made are dropped with their rows",
		Long:    "Revert the newest migration. " + descentHelp,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.migrateTo(c.Context(), sqlschema.Previous, down)
		},
	}
	down.register(descend)
	goTo := &cobra.Command{
		Use:     "to VERSION",
		Example: `  dbcron migrate to 101`,
		Short:   "Bring the tables to a version, up or down; 0 has no tables",
		Long:    "Bring the tables to a version, up or down; 0 has no tables. " + descentHelp,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			version, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return usagef("version %q is not a number", args[0])
			}
			return p.migrateTo(c.Context(), func(int64) int64 { return version }, to)
		},
	}
	to.register(goTo)
	c.AddCommand(
		&cobra.Command{
			Use:     "up",
			Example: `  dbcron migrate up`,
			Short:   "Run all migrations that have not been run",
			RunE:    func(c *cobra.Command, _ []string) error { return p.migrateUp(c.Context()) },
		},
		descend, goTo,
		&cobra.Command{
			Use:     "prompt",
			Example: `  dbcron migrate prompt`,
			Short:   "Make the views and routines for the SQL prompt, also if they are there",
			Long: `Make the views and the functions or procedures for the SQL prompt, such as dbcron_v_job,
dbcron_enqueue, dbcron_take and dbcron_acquire, also if they are there: dbcron help queue-sql.
The migrations make them too, but leave them out where the user may not; and some dumps
do not have them. On MySQL the rights to call the procedures have to be granted again.`,
			RunE: func(c *cobra.Command, _ []string) error {
				return p.migrating(c.Context(), sqlschema.Prompt)
			},
		},
		status, p.migrateSQL())
	return c
}

func (p *program) migrating(ctx context.Context, f func(context.Context, *dialect.DB) error) (err error) {
	db, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(sqlschema.OnWait(ctx, func(text string) { fmt.Fprintln(p.err, "dbcron: "+text) }), db)
}

func (p *program) migrateUp(ctx context.Context) error {
	return p.migrating(ctx, func(ctx context.Context, db *dialect.DB) error {
		return p.migrateLogged(ctx, db, sqlschema.Latest(db.Dialect), sqlschema.Migrate)
	})
}

// migrateTo migrates the tables to a version. It goes down only as far as permitted.
func (p *program) migrateTo(ctx context.Context, version func(at int64) int64, may descent) error {
	return p.migrating(ctx, func(ctx context.Context, db *dialect.DB) error {
		if err := sqlschema.Check(ctx, db); err != nil && !errors.Is(err, sqlschema.ErrOutdated) {
			return err
		}
		at, err := sqlschema.Version(ctx, db)
		if err != nil {
			return err
		}
		to := version(at)
		all, err := sqlschema.Status(ctx, db)
		if err != nil {
			return err
		}
		known := to == 0 || slices.ContainsFunc(all, func(m sqlschema.Migration) bool { return m.Version == to })
		if known && to < at {
			if err := p.permitDescent(ctx, db, at, to, may); err != nil {
				return err
			}
		}
		return p.migrateLogged(ctx, db, to, func(ctx context.Context, db *dialect.DB) error { return sqlschema.To(ctx, db, to) })
	})
}

// migrateLogged migrates to a version, and reports progress and result.
func (p *program) migrateLogged(ctx context.Context, db *dialect.DB, to int64, f func(context.Context, *dialect.DB) error) error {
	before, err := sqlschema.Version(ctx, db)
	if err != nil {
		return err
	}
	// between counts the migrations between two versions.
	between := func(from, to int64) (n int, err error) {
		all, err := sqlschema.Status(ctx, db)
		for _, m := range all {
			if min(from, to) < m.Version && m.Version <= max(from, to) {
				n++
			}
		}
		return n, err
	}
	so := p.begin(ctx, progress.Task{
		What: fmt.Sprintf("migrating from version %d to %d", before, to), Unit: "migrations",
		Look: func(ctx context.Context) (int, error) {
			at, err := sqlschema.Version(ctx, db)
			if err != nil {
				return 0, err
			}
			return between(before, at)
		},
		Left: func(ctx context.Context) (int, error) {
			at, err := sqlschema.Version(ctx, db)
			if err != nil {
				return 0, err
			}
			return between(at, to)
		},
	})
	err = f(ctx, db)
	so.End()
	if err != nil {
		return err
	}
	after, err := sqlschema.Version(ctx, db)
	if err != nil {
		return err
	}
	p.say("from", before)
	p.say("to", after)
	if before == after {
		_, err = fmt.Fprintf(p.out, "nothing to do: version %d\n", after)
	} else {
		_, err = fmt.Fprintf(p.out, "migrated from version %d to %d\n", before, after)
	}
	if err == nil && after == sqlschema.Latest(db.Dialect) {
		err = p.missPrompt(ctx, db)
	}
	return err
}

// missPrompt reports missing views and routines, which the migrations leave out for lack of rights, or where the database lacks what they
// take: there no right helps.
func (p *program) missPrompt(ctx context.Context, db *dialect.DB) error {
	if why, lacks := db.Lacks(dialect.Functions); lacks {
		fmt.Fprintln(p.err, "dbcron: the views and routines for the SQL prompt are not made, and nothing else needs them: "+why)
		return nil
	}
	there, err := sqlschema.HasPrompt(ctx, db)
	if err == nil && !there {
		fmt.Fprintln(p.err, "dbcron: the views and routines for the SQL prompt are not all there, or are those of another build; nothing else needs them."+
			" To have them, grant the rights (dbcron help grants), then run dbcron migrate prompt")
	}
	return err
}

func (p *program) migrateStatus(ctx context.Context, db *dialect.DB, output string) error {
	all, err := sqlschema.Status(ctx, db)
	if err != nil {
		return err
	}
	rows := make([]migrationRow, len(all))
	for i, m := range all {
		rows[i] = migrationRow(m)
	}
	if err := table.Write(p.out, output, rows); err != nil {
		return err
	}
	if err := sqlschema.Check(ctx, db); err != nil && !errors.Is(err, sqlschema.ErrOutdated) {
		return err
	}
	return nil
}

type migrationRow struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

func (p *program) migrateSQL() *cobra.Command {
	var from int64
	c := &cobra.Command{
		Use: "sql",
		Example: `  dbcron migrate sql --url postgres:// >tables.sql
  dbcron migrate sql --url mysql:// --from 1 >newer.sql`,
		Short: "Print the SQL of the migrations, to be run by hand",
		Long: `Print the statements that bring the tables from a version to the newest,
bookkeeping included. The database is not opened; its URL says which engine.`,
		RunE: func(c *cobra.Command, _ []string) error {
			rawURL, err := p.databaseURL()
			if err != nil {
				return err
			}
			d, err := engines.ForURL(rawURL)
			if err != nil {
				return usagef("%v", err)
			}
			if err := sqlschema.SQL(c.Context(), p.out, d, p.options(), from); err != nil {
				return usagef("%v", err)
			}
			return nil
		},
	}
	c.Flags().Int64Var(&from, "from", 0, "the version that the tables are at")
	return c
}
