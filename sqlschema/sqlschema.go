// Package sqlschema creates and changes dbcron's tables. It embeds numbered migrations, with the same
// numbers and names for each engine, and runs them with goose.
//
// The table {prefix}migration records which have run. Any number of processes may call [Migrate] at
// once: one migrates, the others wait and then find nothing left to do.
//
// Tables of jobs may be partitioned by queue_id. Most statements name their queue as a constant and open
// one partition. Those that lock or move jobs take the queue from a list of rows, open all partitions,
// and find rows in one. A constant beside that list costs PostgreSQL more: with the statistics of an empty
// table it then reads a whole block, 3,264 rows for one job.
package sqlschema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var (
	// ErrNewer means that a newer dbcron has migrated the database: this one must not touch it.
	ErrNewer = errors.New("the database's schema is newer than this dbcron")

	// ErrNoVersion means that there is no such version.
	ErrNoVersion = errors.New("there is no version")

	// ErrOutdated means that some migrations have not run.
	ErrOutdated = errors.New("the database's schema is not up to date: run dbcron migrate up")

	// ErrTooOld means that no migration leads from the database's schema to one that this dbcron knows.
	ErrTooOld = errors.New("the database's tables are too old for this dbcron to migrate")

	// ErrMismatch means that the tables have a version that this dbcron knows, and were made by other statements.
	ErrMismatch = errors.New("the database's tables were made by another build of dbcron")
)

// A Migration is one step of the schema.
type Migration struct {
	Version int64
	Name    string
	Applied bool
}

var (
	current = sqlrun.SQL("sqlschema.current", `SELECT COALESCE(MAX(version_id), 0) FROM {prefix}migration`)

	// first inserts the row that goose expects in its table. It is missing if
	// goose died between creating the table and filling it, on engines where
	// these are not one transaction. Two processes without the lock may both
	// insert one: goose tolerates that, and the later one's lockFirst sees
	// both.
	first = sqlrun.SQL("sqlschema.first", `
		INSERT INTO {prefix}migration (version_id, is_applied)
		SELECT 0, TRUE FROM (SELECT COUNT(*) AS n FROM {prefix}migration) AS counted WHERE n = 0`)

	// elsewhere finds the schemas that have tables of that name, on engines where a database has several.
	elsewhere = sqlrun.PerDialect("sqlschema.elsewhere", func(d *dialect.Dialect) string {
		if !d.Schema {
			return "SELECT '' LIMIT 0"
		}
		return "SELECT CAST(table_schema AS TEXT) FROM information_schema.tables WHERE table_name = :name ORDER BY table_schema LIMIT 5"
	})

	// mayMake says whether the user may make tables in a schema.
	mayMake = sqlrun.PerDialect("sqlschema.may-make", func(d *dialect.Dialect) string {
		if !d.Schema {
			return "SELECT 1 FROM (SELECT :name AS name) AS home"
		}
		return "SELECT has_schema_privilege(CAST(:name AS TEXT), 'CREATE')"
	})

	// lockFirst locks that row, which nobody changes, until its transaction ends.
	lockFirst = sqlrun.PerDialect("sqlschema.lock-first", func(d *dialect.Dialect) string {
		if d.RowLocked == "" {
			return "SELECT 1"
		}
		return "SELECT version_id FROM {prefix}migration WHERE version_id = 0 " + d.RowLocked
	})
)

// Version returns the database's version, 0 if there are no tables. It only needs the right to read.
func Version(ctx context.Context, db *dialect.DB) (version int64, err error) {
	err = db.Get(ctx, current, nil, &version)
	if db.Dialect.Missing(err) {
		return 0, nil
	}
	return version, err
}

// Latest returns the version that this program needs.
func Latest(d *dialect.Dialect) int64 { return latest(d, nil) }

func latest(d *dialect.Dialect, further fs.FS) int64 {
	folder, err := folder(d.Name, further)
	var all []file
	if err == nil {
		all, err = numbered(folder)
	}
	if err != nil {
		panic(err) // the embedded files are wrong, which every test shows
	}
	return all[len(all)-1].Version
}

// Check returns nil if the schema is the one that this program needs, and ErrNewer, ErrOutdated, ErrTooOld or
// ErrMismatch if not. It only needs the right to read.
func Check(ctx context.Context, db *dialect.DB) error {
	version, err := Version(ctx, db)
	latest := latest(db.Dialect, db.FurtherMigrations())
	switch {
	case err != nil:
		return err
	case version > latest:
		return fmt.Errorf("%w: it is at version %d, and this program knows up to %d; use a dbcron that knows version %d",
			ErrNewer, version, latest, version)
	case version > 0 && version < firstVersion:
		return tooOld(version)
	}
	others, err := ranOthers(ctx, db, version)
	if err != nil {
		return err
	}
	for _, v := range others {
		if !slices.Contains(promptVersions, v) { // HasPrompt tells of those
			return mismatch(v)
		}
	}
	if version == latest {
		return nil
	}
	hint := ""
	if version == 0 {
		hint = otherHome(ctx, db)
	}
	return fmt.Errorf("%w (it is at version %d, and version %d is needed)%s", ErrOutdated, version, latest, hint)
}

// otherHome tells of tables in schemas other than the one that was looked in.
func otherHome(ctx context.Context, db *dialect.DB) string {
	all := otherHomes(ctx, db)
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("; there are tables in schema %s, and this is about schema %s: --schema %s names that one", strings.Join(all, ", "), db.Home(), all[0])
}

// otherHomes returns the schemas with tables other than the one that was looked in; none if they cannot be read, since it is a hint only.
func otherHomes(ctx context.Context, db *dialect.DB) []string {
	prefix := db.Prefix()
	prefix = prefix[strings.LastIndex(prefix, ".")+1:]
	args := sqlrun.Args{"name": prefix + "migration"}
	all, err := sqlrun.Select(ctx, &db.Session, elsewhere, args, func(rows *sql.Rows) (name string, err error) {
		return name, rows.Scan(&name)
	})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == db.Home() })
}

// Status lists all migrations and whether each has run.
func Status(ctx context.Context, db *dialect.DB) ([]Migration, error) {
	version, err := Version(ctx, db)
	if err != nil {
		return nil, err
	}
	all, err := files(db.Dialect.Name, db.FurtherMigrations(), "", "")
	if err != nil {
		return nil, err
	}
	status := make([]Migration, 0, len(all))
	for _, m := range all {
		status = append(status, Migration{m.Version, m.Name, m.Version <= version})
	}
	return status, nil
}

// Migrate runs all migrations that have not run. It returns ErrNewer if the database is ahead of this
// program. If a migration fails on MySQL, which commits each DDL statement by itself, Migrate can be
// called again.
func Migrate(ctx context.Context, db *dialect.DB) error {
	if err := Check(ctx, db); !errors.Is(err, ErrOutdated) {
		return err
	}
	if err := To(ctx, db, latest(db.Dialect, db.FurtherMigrations())); err != nil {
		return advised(ctx, db, err)
	}
	return nil
}

// Down reverts the newest migration. It drops the tables that the migration created, with their
// contents.
func Down(ctx context.Context, db *dialect.DB) error {
	if err := Check(ctx, db); err != nil && !errors.Is(err, ErrOutdated) {
		return err
	}
	version, err := Version(ctx, db)
	if err != nil || version == 0 {
		return err
	}
	return To(ctx, db, Previous(version))
}

// Previous returns the version before one that this program knows: 0, where there are no tables, before the first.
func Previous(version int64) int64 {
	if version <= firstVersion {
		return 0
	}
	return version - 1
}

// To migrates the schema up or down to a version. Version 0 has no tables.
func To(ctx context.Context, db *dialect.DB, version int64) error {
	latest := latest(db.Dialect, db.FurtherMigrations())
	if version != 0 && version < firstVersion || version > latest {
		return noVersion(version, latest)
	}
	// A pool of one connection could not both hold the lock and migrate.
	if db.Pool().Stats().MaxOpenConnections == 1 {
		return errors.New("migrating needs a pool of two connections at least: raise MaxConns or SetMaxOpenConns")
	}
	row, err := rowToLock(ctx, db)
	if err != nil {
		return err
	}
	unlock, err := db.Exclusive(ctx, "migrate "+db.Name(), row)
	if err != nil {
		return err
	}
	defer unlock()
	// Read again: another process may have migrated while we waited.
	if err := Check(ctx, db); err != nil && !errors.Is(err, ErrOutdated) {
		return err
	}
	at, err := Version(ctx, db)
	if err != nil || at == version {
		return err
	}
	if _, err := db.Exec(ctx, first, nil); err != nil && !db.Dialect.Missing(err) {
		return err
	}
	for range 5 { // a serializable transaction may have met a concurrent reader
		err = patiently(ctx, db, func(pool *sql.DB) error { return step(ctx, db, pool, version) })
		if !db.Dialect.Retryable(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("migrate from version %d to %d: %w", at, version, err)
	}
	return nil
}

// advised adds to the error of a first migration what to do if the user lacks the right to make tables.
func advised(ctx context.Context, db *dialect.DB, err error) error {
	if !db.Dialect.Denied(err) {
		return err
	}
	if at, wrong := Version(ctx, db); wrong != nil || at > 0 {
		return err
	}
	return fmt.Errorf("%s: %w", mayNot(db), err)
}

// mayNot says that the user may not make tables, and what to do.
func mayNot(db *dialect.DB) string {
	if !db.Dialect.Schema || db.Home() == "" {
		return "the user may not make tables here: grant it the rights of docs/grants.md, or migrate as one that has them"
	}
	return fmt.Sprintf("the user may not make tables in schema %s: grant it CREATE there, or name one where it may with --schema (docs/grants.md)", db.Home())
}

// Advice returns what brings the tables to the version that this program needs, where Check says ErrOutdated.
func Advice(ctx context.Context, db *dialect.DB) string {
	const usual = "run dbcron migrate up"
	if version, err := Version(ctx, db); err != nil || version > 0 || !db.Dialect.Schema {
		return usual
	}
	if other := otherHomes(ctx, db); len(other) > 0 {
		return fmt.Sprintf("name the schema that has the tables: --schema %s; this is about schema %s", strings.Join(other, " or "), db.Home())
	}
	may := true
	if err := db.Get(ctx, mayMake, sqlrun.Args{"name": db.Home()}, &may); err == nil && !may {
		return mayNot(db) + "; then " + usual
	}
	return usual
}

// step migrates from the present version.
func step(ctx context.Context, db *dialect.DB, pool *sql.DB, version int64) error {
	at, err := Version(ctx, db)
	if err != nil || at == version {
		return err
	}
	p, err := provider(ctx, db, pool)
	if err != nil {
		return err
	}
	if at < version {
		return passingPrompt(ctx, db, at, version, p.UpTo)
	}
	return passingPrompt(ctx, db, at, version, p.DownTo)
}

// rowToLock returns the statement that locks the first row of goose's table, on engines whose
// Exclusive locks a row. It makes sure that the row exists.
func rowToLock(ctx context.Context, db *dialect.DB) (*sqlrun.Stmt, error) {
	if db.Dialect.RowLocked == "" {
		return nil, nil
	}
	if err := makeSchema(ctx, db, db.Options().Schema); err != nil {
		return nil, err
	}
	_, err := db.Exec(ctx, first, nil)
	if !db.Dialect.Missing(err) {
		return lockFirst, err
	}
	table, err := versionTable(ctx, db.Dialect, db.Prefix()+"migration")
	if err != nil {
		return nil, err
	}
	made := db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		if _, err := tx.ExecText(ctx, table); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, first, nil)
		return err
	})
	if _, err := db.Exec(ctx, first, nil); err != nil { // another process may have created the table meanwhile
		if made != nil && db.Dialect.Missing(err) {
			return nil, made // which is why it is missing
		}
		return nil, errors.Join(made, err)
	}
	return lockFirst, nil
}

func provider(ctx context.Context, db *dialect.DB, pool *sql.DB, opts ...goose.ProviderOption) (*goose.Provider, error) {
	if err := makeSchema(ctx, db, db.Options().Schema); err != nil {
		return nil, err
	}
	folder, err := folder(db.Dialect.Name, db.FurtherMigrations())
	if err != nil {
		return nil, err
	}
	versions, err := database.NewStore(goose.Dialect(db.Dialect.Goose), db.Prefix()+"migration")
	if err != nil {
		return nil, err
	}
	opts = append(opts, goose.WithStore(store{versions, db}), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	// Patient sees to it that names without a schema or database are those of the home.
	return goose.NewProvider(goose.DialectCustom, pool, filled{folder, names(db.Name(), db.Options().Prefix)}, opts...)
}

// A store is goose's, except that goose looks for a table by its name in the catalog, where quoted ones are not found.
type store struct {
	database.Store
	db *dialect.DB
}

// TableExists reports whether the table of versions exists.
func (s store) TableExists(ctx context.Context, on database.DBTxConn) (bool, error) {
	rows, err := on.QueryContext(ctx, "SELECT 1 FROM "+s.Tablename()+" WHERE 1 = 0")
	if s.db.Dialect.Missing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer rows.Close()
	return true, rows.Err()
}

// makeSchema creates the schema of the tables, if they have their own. It checks first: IF NOT EXISTS
// needs the right to create one even if it exists.
func makeSchema(ctx context.Context, db *dialect.DB, schema string) error {
	if schema == "" {
		return nil
	}
	var there int
	err := db.Pool().QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = "+
		db.Dialect.Placeholder(1), schema).Scan(&there)
	if err == nil && there == 0 {
		_, err = db.Pool().ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema) // the name was validated when db was made
		if db.Dialect.Duplicate(err) {
			err = nil // of two concurrent creators, one may get this error
		}
	}
	if err != nil {
		return fmt.Errorf("schema %s: %w", schema, err)
	}
	return nil
}

// SQL writes the statements that migrate the schema from a version to the latest, including
// bookkeeping, for running them by hand.
func SQL(ctx context.Context, w io.Writer, d *dialect.Dialect, opt dialect.Options, from int64) error {
	return writeSQL(ctx, w, d, nil, opt, from)
}

func writeSQL(ctx context.Context, w io.Writer, d *dialect.Dialect, further fs.FS, opt dialect.Options, from int64) error {
	filled, prefix, err := sqlrun.Options(opt).Filled(d)
	if err != nil {
		return err
	}
	all, err := files(d.Name, further, prefix, filled.Prefix)
	if err != nil {
		return err
	}
	latest := latest(d, further)
	if from != 0 && from < firstVersion || from > latest {
		return noVersion(from, latest)
	}
	var out strings.Builder
	if d.DDLInTx && from < latest {
		out.WriteString("BEGIN;\n")
	}
	if from == 0 {
		if opt.Schema != "" {
			fmt.Fprintf(&out, "CREATE SCHEMA IF NOT EXISTS %s;\n", opt.Schema)
		}
		table, err := versionTable(ctx, d, prefix+"migration")
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s;\nINSERT INTO %smigration (version_id, is_applied) VALUES (0, TRUE);\n", table, prefix)
	}
	for _, m := range all {
		if m.Version <= from {
			continue
		}
		_, up, _ := strings.Cut(m.text, "-- +goose Up\n")
		up, _, _ = strings.Cut(up, "-- +goose Down")
		up = delimited(d, up)
		fmt.Fprintf(&out, "\n-- %05d %s\n%s\nINSERT INTO %smigration (version_id, is_applied) VALUES (%d, TRUE);\n",
			m.Version, m.Name, strings.TrimSpace(up), prefix, m.Version)
	}
	if d.DDLInTx && from < latest {
		out.WriteString("COMMIT;\n")
	}
	_, err = io.WriteString(w, out.String())
	return err
}

func noVersion(version, latest int64) error {
	return fmt.Errorf("%w %d: this program knows 0, and %d to %d", ErrNoVersion, version, firstVersion, latest)
}

// versionTable returns goose's statement that creates its table, by running goose against a connection
// that records statements.
func versionTable(ctx context.Context, d *dialect.Dialect, name string) (string, error) {
	store, err := database.NewStore(goose.Dialect(d.Goose), name)
	if err != nil {
		return "", err
	}
	r := &recorder{}
	if err := store.CreateVersionTable(ctx, r); err != nil {
		return "", err
	}
	return strings.NewReplacer("\n\t\t", "\n    ", "\n\t", "\n").Replace(r.query), nil // indented as in goose's source
}

type recorder struct {
	database.DBTxConn
	query string
}

func (r *recorder) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	r.query = query
	return nil, nil
}
