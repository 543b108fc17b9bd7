package httpapi

import (
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Processes are listed, drained by what their names have in common, and undrained.
func TestNodes(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		for _, name := range []string{"web-1:7:a", "web-1:7:b", "web-10:7:c"} {
			db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, version, tags) VALUES (:name, 'live', {now + 3600000000}, 'v1', 'default')`, sqlrun.Args{"name": name})
		}
		db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('web-2', 'gone', {now})`, nil)
		s.get("/api/v1/nodes").is(200).has(`"name":"web-1:7:a","state":"live","version":"v1","tags":["default"],"started":"`).has(`"name":"web-2","state":"gone"`)
		s.get("/api/v1/nodes?limit=1").is(200).has(`"next_cursor":"`)
		s.post("/api/v1/nodes/web-1:7/drain", nil).is(200).has(`"name":"web-1:7:a","state":"drained"`).has(`"name":"web-1:7:b","state":"drained"`)
		if n := len(db.List(t, `SELECT name FROM {prefix}node WHERE drained_at IS NOT NULL`, nil)); n != 2 {
			t.Errorf("%d processes are drained", n)
		}
		s.post("/api/v1/nodes/web-1:7:a/undrain", nil).is(200).has(`"state":"live"`)
		s.post("/api/v1/nodes/web-2/drain", nil).is(404)
		s.post("/api/v1/nodes/web/undrain", nil).is(404)
		s.get("/api/v1/nodes?limit=0").is(422).at("query.limit")
	})
}
