package sqlschema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// promptVersions are the migrations that make the views and routines for the SQL prompt.
// No program needs them, and making them takes further rights: where these are missing
// they are left out, and can be made up for by [Prompt], which runs them again in this
// order. So what one of them makes, it makes whether it is there or not, and a later one
// may replace what an earlier one has made.
var promptVersions = []int64{102}

var promptRoutines = sqlrun.SQL("sqlschema.prompt-routines", `
		SELECT DISTINCT routine_name FROM information_schema.routines WHERE routine_name LIKE :like AND (routine_schema = :schema OR :schema = '')`)

// made finds what a migration makes for the SQL prompt.
var made = pattern.Lazy(`(?m)^CREATE (?:OR REPLACE )?(VIEW|FUNCTION|PROCEDURE) \{prefix\}(\w+)`)

// promptNames returns the names, without the prefix, of the views and routines for the SQL
// prompt that an engine has.
func promptNames(d *sqlrun.Dialect) (views, routines []string, err error) {
	all, err := promptFiles(d)
	for _, m := range all {
		up, _, _ := strings.Cut(m.text, "-- +goose Down")
		for _, found := range made().FindAllStringSubmatch(up, -1) {
			into := &routines
			if found[1] == "VIEW" {
				into = &views
			}
			if !slices.Contains(*into, found[2]) {
				*into = append(*into, found[2])
			}
		}
	}
	return views, routines, err
}

// promptFiles returns the migrations for the SQL prompt, with the names in braces.
func promptFiles(d *sqlrun.Dialect) ([]file, error) {
	all, err := files(d.Name, nil, "{prefix}", "{name}")
	return slices.DeleteFunc(all, func(f file) bool { return !slices.Contains(promptVersions, f.Version) }), err
}

// HasPrompt reports whether the views and routines for the SQL prompt are all there, are those of this program, and may
// be used.
func HasPrompt(ctx context.Context, db *dialect.DB) (bool, error) {
	others, err := ranOthers(ctx, db, latest(db.Dialect, db.FurtherMigrations()))
	if err != nil || len(others) > 0 {
		return false, err
	}
	views, routines, err := promptNames(db.Dialect)
	if err != nil {
		return false, err
	}
	for _, view := range views {
		var n int
		err := db.Pool().QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 AS one FROM "+db.Prefix()+view+" WHERE 1 = 0) AS none").Scan(&n)
		if db.Dialect.Missing(err) || db.Dialect.Denied(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	if !db.Dialect.Routines {
		return true, nil
	}
	prefix := db.Options().Prefix
	there, err := sqlrun.Select(ctx, &db.Session, promptRoutines, sqlrun.Args{"like": prefix + "%", "schema": db.Home()},
		func(rows *sql.Rows) (name string, err error) { return name, rows.Scan(&name) })
	for _, name := range routines {
		if !slices.Contains(there, prefix+name) {
			return false, err
		}
	}
	return err == nil, err
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
	var row *sqlrun.Stmt // whoever may make views need not have the right to lock one
	if _, lacks := db.Lacks(dialect.AdvisoryLocks); lacks {
		row = lockFirst
	}
	unlock, err := db.Exclusive(ctx, "migrate "+db.Name(), row)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := files(db.Dialect.Name, db.FurtherMigrations(), "", "")
	if err != nil {
		return err
	}
	var others []string
	for _, m := range all {
		if !slices.Contains(promptVersions, m.Version) {
			others = append(others, fmt.Sprintf("%05d_%s.sql", m.Version, m.Name))
		}
	}
	err = patiently(ctx, db, func(pool *sql.DB) error {
		p, err := provider(ctx, db, pool, goose.WithDisableVersioning(true), goose.WithExcludeNames(others))
		if err == nil {
			_, err = p.Up(ctx)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make the views and routines for the SQL prompt: %w", err)
	}
	return nil
}

// passingPrompt migrates by step. Migrations for the SQL prompt are left out where the database
// does without functions, and for want of rights, or of the language.
func passingPrompt(ctx context.Context, db *dialect.DB, at, version int64,
	step func(context.Context, int64) ([]*goose.MigrationResult, error),
) error {
	up := at < version
	note := func(of int64) error {
		_, err := db.Exec(ctx, notes[up], sqlrun.Args{"version": of})
		return err
	}
	if _, lacks := db.Lacks(dialect.Functions); lacks && up {
		for _, of := range promptVersions {
			if of <= at || of > version {
				continue
			}
			if at < of-1 {
				if _, err := step(ctx, of-1); err != nil {
					return err
				}
			}
			if err := note(of); err != nil {
				return err
			}
			at = of
		}
	}
	_, err := step(ctx, version)
	for range promptVersions {
		of := leftOut(db.Dialect, err)
		if of == 0 {
			break
		}
		if err = note(of); err == nil {
			_, err = step(ctx, version)
		}
	}
	return err
}

// leftOut reports whether migrating failed for want of what the SQL prompt takes, and at which
// migration: then that is noted as run, or as taken back, and the others go on.
func leftOut(d *sqlrun.Dialect, err error) (version int64) {
	var part *goose.PartialError
	if !errors.As(err, &part) || !d.Denied(err) && (d.Unknown == nil || !d.Unknown(err)) {
		return 0
	}
	if version = part.Failed.Source.Version; !slices.Contains(promptVersions, version) {
		return 0
	}
	return version
}

// notes are what is noted then, of migrating up or not. Whoever writes it holds the lock.
var notes = map[bool]*sqlrun.Stmt{
	true:  sqlrun.SQL("sqlschema.leave-out", `INSERT INTO {prefix}migration (version_id, is_applied) VALUES (:version, TRUE)`),
	false: sqlrun.SQL("sqlschema.leave-there", `DELETE FROM {prefix}migration WHERE version_id = :version`),
}

// delimited rewrites goose's marks of statements that hold semicolons for an engine's
// own client.
func delimited(d *sqlrun.Dialect, script string) string {
	begin, end := "", ""
	if d.Delimiter {
		begin, end = "DELIMITER //\n", "//\nDELIMITER ;\n"
	}
	return strings.NewReplacer("-- +goose StatementBegin\n", begin, "-- +goose StatementEnd\n", end).Replace(script)
}
