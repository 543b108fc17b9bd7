package store

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

// A statement that reads jobs reads each of its columns, whose name is one that is known.
func TestColumnsAreKnown(t *testing.T) {
	if len(columnsOf) < 15 {
		t.Fatalf("%d statements read jobs", len(columnsOf))
	}
	for stmt, columns := range columnsOf {
		for at, c := range columns {
			if c.read == nil && c.name != "" {
				t.Errorf("%s: column %d, %s, is not known", stmt.Name, at, c.name)
			}
		}
	}
	for expression, want := range map[string]string{
		"id": "id", " {us run_at}": "run_at", " COALESCE({us started_at}, 0)": "started_at", "NULL AS payload": "payload", " NULL": "",
	} {
		if got := nameOf(expression); got != want {
			t.Errorf("%q is %q, not %q", expression, got, want)
		}
	}
}

// What a producer writes of a job is what is read of it.
func TestWrittenIsRead(t *testing.T) {
	want := Job{
		ID: 1, Priority: 2, Kind: "a", Key: "b", Payload: []byte("c"), Binary: true, MaxAttempts: 3, Timeout: 4 * time.Second,
		Trace: "d", Unique: "e", Group: 5, Endpoint: "f",
	}
	raw := [][]byte{[]byte("1"), []byte("2")}
	for _, c := range body {
		switch v := c.value(&want).(type) {
		case nil:
			raw = append(raw, nil)
		case string:
			raw = append(raw, []byte(v))
		case sqlrun.Bytes:
			raw = append(raw, v)
		case int:
			raw = append(raw, []byte{byte('0' + v)})
		case int64:
			raw = append(raw, map[int64][]byte{4_000_000: []byte("4000000"), 5: []byte("5")}[v])
		}
	}
	var row sqlrun.Row
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(row.Give(raw, nil, func(*sqlrun.Row) error { return nil }))
	if got := NewReader(FetchReady).Read(&row); !reflect.DeepEqual(*got, want) {
		t.Errorf("read %+v\nnot  %+v", *got, want)
	}
	bare := NewReader(FetchReady)
	bare.Keep = func(id int64, size int) bool { return id != 1 || size != 1 }
	if got := bare.Read(&row); !got.Bare || got.Lacks != 1 || got.Payload != nil {
		t.Errorf("the payload was not left out: %+v", got)
	}
	if !(Jobs{{Kind: "a", Key: "b", Payload: []byte("{}")}}).Plain() || (Jobs{{Endpoint: "a"}}).Plain() {
		t.Error("what is plain is not told from what is rare")
	}
}

// The types in body and keyFields are those of the tables' columns: a bulk load writes numbers in the sizes that they say.
func TestTypesOfColumns(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		types := map[string]string{"text": "character varying", "bytes": "bytea"} // the others have the catalog's names
		for _, table := range []string{"job", "job_delayed", "job_running", "job_dead", "job_done"} {
			for _, c := range slices.Concat(copiedKey, copiedBody) {
				var is string
				db.Scan(t, `SELECT COALESCE((SELECT format_type(atttypid, NULL) FROM pg_attribute
					WHERE attrelid = CAST('{prefix}`+table+`' AS regclass) AND attname = :name), 'no column')`, sqlrun.Args{"name": c.name}, &is)
				if want := cmp.Or(types[c.kind], c.kind); is != want {
					t.Errorf("%s.%s is %s, and %s here", table, c.name, is, want)
				}
			}
		}
	})
}
