package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
)

var poolPostgres = &pooling{
	lock:   "SELECT pg_try_advisory_lock(hashtext('%[1]s'), 0)",
	unlock: "SELECT pg_advisory_unlock(hashtext('%[1]s'), 0)",
	there:  "SELECT COUNT(*) FROM pg_database WHERE datname = '%[1]s'",
	connected: func(ctx context.Context, c *sql.Conn, name string) (n int, err error) {
		err = ask(ctx, c, "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = '%[1]s' AND backend_type = 'client backend'", name, &n)
		return n, err
	},
	template: func(ctx context.Context, admin *dialect.DB, adminURL string) (like template, err error) {
		like.name, err = templatePostgres(ctx, admin, adminURL)
		if err == nil {
			err = admin.Pool().QueryRowContext(ctx, "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = $1",
				like.name).Scan(&like.described)
		}
		if Bare() {
			like.name += "_bare"
		}
		// A lock is one of the database that the administrator is connected to.
		var at string
		if err == nil {
			err = admin.Pool().QueryRowContext(ctx, "SELECT oid FROM pg_database WHERE datname = current_database()").Scan(&at)
		}
		like.name += "_" + at
		return like, err
	},
	empty: emptyPostgres,
}

// linesPostgres selects a line for everything that is no row.
const linesPostgres = `
	WITH spaces AS (SELECT oid, nspname, nspacl FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
	relations AS (SELECT c.*, nspname FROM pg_class AS c JOIN spaces AS s ON s.oid = relnamespace)
	SELECT concat_ws(' ', nspname, nspacl) FROM spaces
	UNION ALL SELECT concat_ws(' ', nspname, relname, relkind, relnatts, relchecks, relrowsecurity, reloptions, relpersistence, relreplident, relacl)
	FROM relations
	UNION ALL SELECT concat_ws(' ', relname, attname, attnum, atttypid, atttypmod, attnotnull, atthasdef, attidentity, attcollation, attacl, attoptions)
	FROM pg_attribute JOIN relations AS c ON c.oid = attrelid WHERE attnum > 0
	UNION ALL SELECT concat_ws(' ', relname, adnum, md5(adbin::text)) FROM pg_attrdef JOIN relations AS c ON c.oid = adrelid
	UNION ALL SELECT concat_ws(' ', relname, conname, contype, convalidated) FROM pg_constraint JOIN relations AS c ON c.oid = conrelid
	UNION ALL SELECT concat_ws(' ', relname, tgname, tgenabled) FROM pg_trigger JOIN relations AS c ON c.oid = tgrelid
	UNION ALL SELECT concat_ws(' ', relname, rulename) FROM pg_rewrite JOIN relations AS c ON c.oid = ev_class
	UNION ALL SELECT concat_ws(' ', relname, polname) FROM pg_policy JOIN relations AS c ON c.oid = polrelid
	UNION ALL SELECT concat_ws(' ', nspname, proname, proargtypes, md5(prosrc), proconfig, proacl) FROM pg_proc JOIN spaces AS s ON s.oid = pronamespace
	UNION ALL SELECT concat_ws(' ', nspname, typname) FROM pg_type JOIN spaces AS s ON s.oid = typnamespace
	UNION ALL SELECT concat_ws(' ', extname, extversion) FROM pg_extension
	UNION ALL SELECT concat_ws(' ', evtname) FROM pg_event_trigger
	UNION ALL SELECT concat_ws(' ', defaclacl) FROM pg_default_acl
	UNION ALL SELECT concat_ws(' ', setrole, setconfig) FROM pg_db_role_setting JOIN pg_database AS d ON d.oid = setdatabase
	WHERE datname = current_database() AND array_to_string(setconfig, ',') <> '` + serializable + `'
	UNION ALL SELECT concat_ws(' ', datacl) FROM pg_database WHERE datname = current_database()
	UNION ALL SELECT concat_ws(' ', version_id, is_applied) FROM dbcron_migration
	UNION ALL SELECT concat_ws(' ', version, checksum) FROM dbcron_migration_checksum`

// serializable is the setting of databases with DBCRON_TEST_BARE.
const serializable = "default_transaction_isolation=serializable"

// restPostgres deletes the rows of small tables, since TRUNCATE makes the files of a table anew.
const restPostgres = `DO $$
	DECLARE
		r record;
	BEGIN
		FOR r IN SELECT c.oid::regclass AS named, pg_relation_size(c.oid) > 65536 AS large FROM pg_class AS c
			WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname NOT LIKE 'dbcron\_migration%' AND pg_relation_size(c.oid) > 0
		LOOP
			IF r.large THEN
				EXECUTE 'TRUNCATE ' || r.named;
			ELSE
				EXECUTE 'DELETE FROM ' || r.named;
			END IF;
		END LOOP;
		PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) FROM pg_sequences
		WHERE last_value IS NOT NULL AND sequencename NOT LIKE 'dbcron_migration%';
	END $$`

func emptyPostgres(ctx context.Context, _ *sql.Conn, adminURL, name, described string) (same bool, err error) {
	db, err := engines.Connect(ctx, withPath(adminURL, name), dialect.Options{MaxConns: 1})
	if err != nil {
		return false, err
	}
	defer db.Close()
	c, err := db.Pool().Conn(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, "DROP TABLE IF EXISTS "+strings.Join(clocks, ", ")); err != nil {
		return false, err
	}
	is, err := describe(ctx, c, linesPostgres)
	if err != nil || is != described {
		return false, err
	}
	for _, query := range []string{restPostgres, fmt.Sprintf(lastFence, "public")} {
		if _, err := c.ExecContext(ctx, query); err != nil {
			return false, err
		}
	}
	return true, nil
}
