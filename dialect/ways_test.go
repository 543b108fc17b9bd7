package dialect_test

import (
	"bytes"
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A value is one value of each type that our columns have.
type value struct {
	bytes, text, js []byte // nil: NULL
	at, n, small    int64
	yes             bool
}

// A pipeline reads no booleans, which have a form of their own on each engine.
const (
	eachButBool = `bytes, text, js, {us at}, n, small, CASE WHEN yes THEN 1 ELSE 0 END`
	theRow      = ` FROM x WHERE id = :id`
)

// What is stored comes back the same, by whatever way the program has connected and our code reads:
// a driver may send and receive values as text or in a binary form, and which one it is differs by
// mode, by type, and by the call.
//
// The class: answers that are read without asking in which format they are. Whatever reads a driver's
// raw values belongs into readers.
func TestValuesComeBackAsTheyWere(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		types := map[string]string{
			postgres.Dialect.Name: "bytes BYTEA, text TEXT, js JSON, at TIMESTAMPTZ, n BIGINT, small SMALLINT",
			mysql.Dialect.Name:    "bytes LONGBLOB, text LONGTEXT, js JSON, at DATETIME(6), n BIGINT, small SMALLINT",
			sqlite.Dialect.Name:   "bytes BLOB, text TEXT, js TEXT, at TEXT, n INTEGER, small INTEGER",
		}[db.Dialect.Name]
		db.Do(t, "CREATE TABLE x (id BIGINT PRIMARY KEY, "+types+", yes BOOLEAN)", nil)
		db.EachWay(t, func(t *testing.T, db *dbtest.DB) {
			if db.Dialect.Name == postgres.Dialect.Name && dbtest.Bare() {
				t.Skip("its transactions may have to be repeated")
			}
			for i, v := range []value{
				{[]byte{0, 1, 255}, []byte("é'\\x00\""), []byte(`{"a": "\\x"}`), 1_700_000_000_123_000, -1 << 63, -1, true},
				{[]byte(`\x00`), []byte(`\x0001ff`), []byte(`"\\x00"`), -1000, 1<<63 - 1, 1<<15 - 1, false},
				{[]byte{}, []byte{}, []byte(`null`), 0, 0, 0, false},
				{},
			} {
				db.Do(t, `DELETE FROM x`, nil)
				args := sqlrun.Args{"id": i, "bytes": v.bytes, "text": nil, "js": nil, "at": v.at, "n": v.n, "small": v.small, "yes": v.yes}
				if v.bytes != nil {
					args["text"], args["js"] = string(v.text), string(v.js)
				} else {
					args["at"], args["n"], args["small"], args["yes"] = nil, nil, nil, nil
				}
				db.Do(t, `INSERT INTO x (id, bytes, text, js, at, n, small, yes) VALUES (:id, :bytes, :text, :js, {time :at}, :n, :small, :yes)`, args)
				for name, read := range readers {
					got, null, err := read(t, db, int64(i))
					if err != nil {
						t.Errorf("%s, row %d: %v", name, i, err)
						continue
					}
					if !bytes.Equal(got.bytes, v.bytes) || string(got.text) != string(v.text) || string(got.js) != string(v.js) ||
						got.at != v.at || got.n != v.n || got.small != v.small || got.yes != v.yes {
						t.Errorf("%s, row %d: got %+v\nwant %+v", name, i, got, v)
					}
					for c, is := range null {
						if want := v.bytes == nil && c != 6; is != want {
							t.Errorf("%s, row %d: column %d is NULL: %v", name, i, c, is)
						}
					}
				}
			}
		})
	})
}

// readers are the ways in which our code reads rows.
var readers = map[string]func(t *testing.T, db *dbtest.DB, id int64) (value, [7]bool, error){
	"select": func(t *testing.T, db *dbtest.DB, id int64) (v value, null [7]bool, err error) {
		return selected(t.Context(), &db.Session, id)
	},
	"transaction": func(t *testing.T, db *dbtest.DB, id int64) (v value, null [7]bool, err error) {
		err = db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) (err error) {
			v, null, err = selected(ctx, tx, id)
			return err
		})
		return v, null, err
	},
	"the driver's transaction": func(t *testing.T, db *dbtest.DB, id int64) (v value, null [7]bool, err error) {
		err = inDriversTx(t.Context(), db, func(ctx context.Context, tx dialect.Execer) (err error) {
			v, null, err = selected(ctx, db.On(tx), id)
			return err
		})
		return v, null, err
	},
	"pipeline": func(t *testing.T, db *dbtest.DB, id int64) (v value, null [7]bool, err error) {
		return piped(t.Context(), db.DB, id)
	},
	"statement by statement": func(t *testing.T, db *dbtest.DB, id int64) (v value, null [7]bool, err error) {
		d, own := *db.Dialect, *db.DB
		d.Pipeline = nil
		own.Dialect = &d
		return piped(t.Context(), &own, id)
	},
}

func selected(ctx context.Context, on *sqlrun.Session, id int64) (v value, null [7]bool, err error) {
	var stored sql.Null[[]byte] // not a slice, since SQLite's driver returns a nil slice for no bytes
	var js, text sql.NullString
	var at, n, small sql.NullInt64
	var yes sql.NullBool
	var one bool
	err = on.Get(ctx, sqlrun.Unlisted(`SELECT `+eachButBool+`, yes`+theRow), sqlrun.Args{"id": id}, &stored, &text, &js, &at, &n, &small, &one, &yes)
	v.bytes = stored.V
	if text.Valid {
		v.text = []byte(text.String)
	}
	if js.Valid {
		v.js = []byte(js.String)
	}
	v.at, v.n, v.small, v.yes = at.Int64, n.Int64, small.Int64, one && yes.Bool
	return v, [7]bool{!stored.Valid, !text.Valid, !js.Valid, !at.Valid, !n.Valid, !small.Valid, false}, err
}

func piped(ctx context.Context, db *dialect.DB, id int64) (v value, null [7]bool, err error) {
	found := 0
	steps := make([]*sqlrun.Step, 2) // the second of a pipeline may be read otherwise than its first
	for i := range steps {
		steps[i] = &sqlrun.Step{Stmt: sqlrun.Unlisted(`SELECT ` + eachButBool + theRow), Args: sqlrun.Args{"id": id}, Scan: func(row *sqlrun.Row) error {
			found++
			v = value{
				bytes.Clone(row.Bytes(0)), bytes.Clone(row.Bytes(1)), bytes.Clone(row.Bytes(2)),
				row.Int(3), row.Int(4), row.Int(5), row.Int(6) == 1,
			}
			for i := range null {
				null[i] = row.Null(i)
			}
			return nil
		}}
	}
	if err = db.Pipeline(ctx, steps...); err == nil && found != len(steps) {
		err = sql.ErrNoRows
	}
	return v, null, err
}

// inDriversTx runs f in a transaction that the program has begun with its driver, if ours adapts it.
func inDriversTx(ctx context.Context, db *dbtest.DB, f func(context.Context, dialect.Execer) error) error {
	c, err := db.Pool().Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if db.Dialect.Name != postgres.Dialect.Name {
		return f(ctx, c)
	}
	return c.Raw(func(driverConn any) error {
		return pgx.BeginFunc(ctx, sqlconn.Unwrap(driverConn).(*stdlib.Conn).Conn(), func(tx pgx.Tx) error { return f(ctx, postgres.Tx(tx)) })
	})
}

// A column that should be a number and is none is an error, not a 0.
func TestANumberThatIsNoneIsAnError(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.EachWay(t, func(t *testing.T, db *dbtest.DB) {
			for _, none := range []string{`'x'`, `'1x'`, `''`, `1.5`} {
				err := db.Pipeline(t.Context(), &sqlrun.Step{
					Stmt: sqlrun.Unlisted(`SELECT ` + none), Scan: func(row *sqlrun.Row) error { _ = row.Int(0); return nil },
				})
				if err == nil {
					t.Errorf("%s is read as a number", none)
				}
			}
		})
	})
}
