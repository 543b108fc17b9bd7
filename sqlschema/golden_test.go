package sqlschema_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The result of all migrations, as the engine itself describes it: of those with one dialect, the first.
func TestGoldenSchema(t *testing.T) {
	dbtest.Dialects.Each(t, func(t *testing.T, db *dbtest.DB) {
		if db.Dialect.Name == mysql.Dialect.Name && !strings.Contains(db.List(t, `SELECT VERSION()`, nil)[0], "MariaDB") {
			t.Skip("the golden file is in the words of MariaDB")
		}
		file, got := filepath.Join("testdata", "schema."+db.Dialect.Name+".sql"), schema(t, db)+"\n"
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not what the migrations make: run make golden, and read the diff\ngot\n%s", file, got)
		}
	})
}

func TestEnginesHaveTheSameMigrations(t *testing.T) {
	var first []string
	for _, d := range engines.All {
		names, err := fs.Glob(os.DirFS(filepath.Join("migrations", d.Name)), "*")
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = names
		}
		if got, want := strings.Join(names, " "), strings.Join(first, " "); got != want || got == "" {
			t.Errorf("%s has %q, and %s has %q", d.Name, got, engines.All[0].Name, want)
		}
		for _, name := range names {
			if !regexp.MustCompile(`^\d{5}_[a-z_]+\.sql$`).MatchString(name) {
				t.Errorf("%s: want five digits and a name", name)
			}
		}
	}
}

// People read the tables at the SQL prompt.
func TestEverythingHasAComment(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		var without []string
		switch db.Dialect.Name {
		case postgres.Dialect.Name:
			without = db.List(t, `
				SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
				WHERE c.relkind = 'r' AND c.relname LIKE 'dbcron%' AND c.relname <> 'dbcron_migration' AND NOT a.attisdropped
					AND (a.attnum > 0 AND col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid) IS NULL)
				ORDER BY 1, 2`, nil)
		case mysql.Dialect.Name:
			without = db.List(t, `
				SELECT c.table_name, c.column_name FROM information_schema.columns c
				JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
				WHERE c.table_schema = DATABASE() AND c.table_name <> 'dbcron_migration' AND t.table_type = 'BASE TABLE'
					AND (c.column_comment = '' OR t.table_comment = '')
				ORDER BY 1, 2`, nil)
		case sqlite.Dialect.Name:
			for _, sql := range db.List(t, `SELECT sql FROM sqlite_schema WHERE type = 'table' AND name LIKE 'dbcron%' AND name <> 'dbcron_migration'`, nil) {
				for line := range strings.SplitSeq(sql, "\n") {
					if !strings.Contains(line, " -- ") && !strings.Contains(line, "CONSTRAINT ") && !strings.HasPrefix(line, ")") {
						without = append(without, line)
					}
				}
			}
		}
		for _, column := range without {
			t.Errorf("no comment: %s", column)
		}
	})
}

// One row with a text in a number's place would stop whoever reads it along with a hundred others.
func TestNumbersAreNumbers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		insert := `INSERT INTO dbcron_job (queue_id, divided, priority, id, kind, timeout) VALUES (1, 0, 2, 1, 'mail', 'soon')`
		if _, err := db.Pool().ExecContext(t.Context(), insert); err == nil {
			t.Error("a job may have the timeout 'soon'")
		}
		if db.Dialect.Name == sqlite.Dialect.Name { // the others know no other kind
			for _, name := range db.List(t, `SELECT name FROM pragma_table_list WHERE type = 'table' AND strict = 0 AND name LIKE 'dbcron%'
				AND name <> 'dbcron_migration'`, nil) {
				t.Errorf("%s is not STRICT", name)
			}
		}
	})
}

// tables lists tables and indexes by name, one per line.
func tables(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	query := `SELECT name FROM sqlite_schema WHERE type <> 'view' AND name NOT LIKE 'sqlite_%' ORDER BY name`
	switch db.Dialect.Name {
	case postgres.Dialect.Name:
		query = `SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1`
	case mysql.Dialect.Name:
		query = `SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY 1`
	}
	return strings.Join(db.List(t, query, nil), "\n")
}

// schema writes all tables in SQL or a similar form.
func schema(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	switch db.Dialect.Name {
	case postgres.Dialect.Name:
		return postgresSchema(t, db)
	case mysql.Dialect.Name:
		return mysqlSchema(t, db)
	}
	text := strings.Join(db.List(t, `SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL AND type <> 'view' AND name NOT LIKE 'sqlite_%' ORDER BY tbl_name, type DESC, name`, nil), "\n\n")
	return strings.NewReplacer("\n\t\t", "\n    ", "\n\t", "\n").Replace(text) // goose's statement keeps the indentation of its source
}

func postgresSchema(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	var out []string
	for name := range strings.SplitSeq(tables(t, db), "\n") {
		args := sqlrun.Args{"table": name}
		columns := db.List(t, `
			SELECT CONCAT('    ', a.attname, ' ', format_type(a.atttypid, a.atttypmod),
				CASE WHEN a.attcollation <> ty.typcollation THEN ' COLLATE "' || co.collname || '"' END,
				CASE WHEN a.attnotnull THEN ' NOT NULL' END,
				CASE WHEN a.attidentity = 'd' THEN ' GENERATED BY DEFAULT AS IDENTITY' WHEN a.attidentity = 'a' THEN ' GENERATED ALWAYS AS IDENTITY' END,
				' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid),
				' -- ' || col_description(a.attrelid, a.attnum))
			FROM pg_attribute a JOIN pg_type ty ON ty.oid = a.atttypid
			LEFT JOIN pg_collation co ON co.oid = a.attcollation
			LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
			WHERE a.attrelid = CAST(:table AS regclass) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, args)
		constraints := db.List(t, `
			SELECT CONCAT('    CONSTRAINT ', conname, ' ', pg_get_constraintdef(oid)) FROM pg_constraint
			WHERE conrelid = CAST(:table AS regclass) AND contype IN ('p', 'u', 'c', 'f', 'x') ORDER BY conname`, args)
		table := db.List(t, `
			SELECT CONCAT(')', ' WITH (' || array_to_string(reloptions, ', ') || ')', ';', ' -- ' || obj_description(oid))
			FROM pg_class WHERE oid = CAST(:table AS regclass)`, args)
		indexes := db.List(t, `
			SELECT pg_get_indexdef(indexrelid) || ';' FROM pg_index i
			WHERE indrelid = CAST(:table AS regclass) AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid)
			ORDER BY CAST(CAST(indexrelid AS regclass) AS TEXT)`, args)
		text := "CREATE TABLE " + name + " (\n" + strings.Join(append(columns, constraints...), "\n") + "\n" + table[0]
		out = append(out, strings.Join(append([]string{text}, indexes...), "\n"))
	}
	return strings.Join(out, "\n\n")
}

// What differs between versions and runs.
var (
	intWidth      = regexp.MustCompile(`\b(tinyint|int|bigint)\((20|11)\)`)
	autoIncrement = regexp.MustCompile(` AUTO_INCREMENT=\d+`)
	characterSet  = regexp.MustCompile(` CHARACTER SET \w+( COLLATE)`) // the collation implies it
	serverDefault = regexp.MustCompile(` DEFAULT CHARSET=\w+ COLLATE=(\w+)`)
)

func mysqlSchema(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	var out []string
	for name := range strings.SplitSeq(tables(t, db), "\n") {
		text := db.List(t, `SHOW CREATE TABLE `+name, nil)[0]
		text = strings.ReplaceAll(strings.TrimPrefix(text, name+" "), "`", "")
		text = intWidth.ReplaceAllString(text, "$1")
		text = autoIncrement.ReplaceAllString(text, "")
		text = characterSet.ReplaceAllString(text, "$1")
		text = strings.ReplaceAll(text, "/*!50100 TABLESPACE innodb_system */ ", "") // MySQL says so of a rebuilt table; the test's server has one file
		if name == "dbcron_migration" {                                              // goose's own table has the database's
			text = serverDefault.ReplaceAllString(text, "")
		}
		out = append(out, text+";")
	}
	return strings.Join(out, "\n\n")
}
