package sqlschema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/dbcron/dbcron/dialect"
)

// promptVersion is the migration that makes the views and routines for the SQL prompt.
// No program needs them, and making them takes further rights: where these are missing
// it is left out, and can be made up for by [Prompt].
const promptVersion = 7

var (
	promptViews = dialect.SQL("sqlschema.prompt-views", `
		SELECT COUNT(*) FROM (SELECT 1 AS one FROM {prefix}v_queue CROSS JOIN {prefix}v_job WHERE 1 = 0) AS none`)

	promptRoutine = dialect.PerDialect("sqlschema.prompt-routine", func(d *dialect.Dialect) string {
		if !d.Routines {
			return "SELECT 1 WHERE :name <> :schema"
		}
		return "SELECT COUNT(*) FROM information_schema.routines WHERE routine_name = :name AND (routine_schema = :schema OR :schema = '')"
	})
)

// HasPrompt tells whether the views and routines for the SQL prompt are there, and may
// be used.
func HasPrompt(ctx context.Context, db *dialect.DB) (bool, error) {
	var n int
	err := db.Get(ctx, promptViews, nil, &n)
	if err == nil {
		err = db.Get(ctx, promptRoutine, dialect.Args{"name": db.Options().Prefix + "enqueue", "schema": db.Options().Schema}, &n)
	}
	if db.Dialect.Missing(err) || db.Dialect.Denied(err) {
		return false, nil
	}
	return n > 0, err
}

// Prompt makes the views and routines for the SQL prompt, or makes them anew: after they
// were left out for want of rights, or were lost with a dump that does not have them.
func Prompt(ctx context.Context, db *dialect.DB) error {
	if err := Check(ctx, db); err != nil {
		return err
	}
	if why, lacks := db.Lacks(dialect.Functions); lacks {
		return fmt.Errorf("the views and routines for the SQL prompt are not made: %s", why)
	}
	var row *dialect.Stmt // whoever may make views need not have the right to lock one
	if _, lacks := db.Lacks(dialect.AdvisoryLocks); lacks {
		row = lockFirst
	}
	unlock, err := db.Exclusive(ctx, "migrate "+db.Prefix(), row)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := files(db.Dialect.Name, "", "")
	if err != nil {
		return err
	}
	var others []string
	for _, m := range all {
		if m.Version != promptVersion {
			others = append(others, fmt.Sprintf("%05d_%s.sql", m.Version, m.Name))
		}
	}
	p, err := provider(ctx, db, goose.WithDisableVersioning(true), goose.WithExcludeNames(others))
	if err == nil {
		_, err = p.Up(ctx)
	}
	if err != nil {
		return fmt.Errorf("make the views and routines for the SQL prompt: %w", err)
	}
	return nil
}

// passingPrompt migrates by step. The migration for the SQL prompt is left out where the database
// does without functions, and for want of rights, or of the language.
func passingPrompt(ctx context.Context, db *dialect.DB, at, version int64,
	step func(context.Context, int64) ([]*goose.MigrationResult, error),
) error {
	up := at < version
	note := func() error {
		_, err := db.Exec(ctx, notes[up], dialect.Args{"version": promptVersion})
		return err
	}
	if _, lacks := db.Lacks(dialect.Functions); lacks && up && at < promptVersion && version >= promptVersion {
		if at < promptVersion-1 {
			if _, err := step(ctx, promptVersion-1); err != nil {
				return err
			}
		}
		if err := note(); err != nil {
			return err
		}
	}
	_, err := step(ctx, version)
	if leftOut(db.Dialect, err) {
		if err = note(); err == nil {
			_, err = step(ctx, version)
		}
	}
	return err
}

// leftOut tells whether migrating failed for want of what the SQL prompt takes: then
// that migration is noted as run, or as taken back, and the others go on.
func leftOut(d *dialect.Dialect, err error) bool {
	var part *goose.PartialError
	return errors.As(err, &part) && part.Failed.Source.Version == promptVersion && (d.Denied(err) || d.Unknown != nil && d.Unknown(err))
}

// notes are what is noted then, of migrating up or not. Whoever writes it holds the lock.
var notes = map[bool]*dialect.Stmt{
	true:  dialect.SQL("sqlschema.leave-out", `INSERT INTO {prefix}migration (version_id, is_applied) VALUES (:version, TRUE)`),
	false: dialect.SQL("sqlschema.leave-there", `DELETE FROM {prefix}migration WHERE version_id = :version`),
}

// delimited rewrites goose's marks of statements that hold semicolons for an engine's
// own client.
func delimited(d *dialect.Dialect, script string) string {
	begin, end := "", ""
	if d.Delimiter {
		begin, end = "DELIMITER //\n", "//\nDELIMITER ;\n"
	}
	return strings.NewReplacer("-- +goose StatementBegin\n", begin, "-- +goose StatementEnd\n", end).Replace(script)
}
