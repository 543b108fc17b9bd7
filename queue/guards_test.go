package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// The world of these tests, created by SQL: queue 1, called q, with its block 3 leased by me
// and its block 5 free, and three jobs in each table, of which statements get the first and the
// third. Ids begin with 7, and differ by table.
const (
	inReady   = 0
	inDelayed = 10
	inRunning = 20
	inDead    = 30
	inDone    = 40
)

// byHand runs statements as a person would.
func byHand(t *testing.T, db *dbtest.DB, statements ...string) {
	t.Helper()
	for _, text := range statements {
		db.Do(t, text, nil)
	}
}

// void removes all rows.
func void(t *testing.T, db *dbtest.DB) {
	t.Helper()
	for _, table := range []string{
		"queue", "queue_block", "node", "queue_worker", "job", "job_delayed",
		"job_running", "job_dead", "job_done",
	} {
		byHand(t, db, "DELETE FROM {prefix}"+table)
	}
}

const (
	ago   = "{now + -7200000000}" // two hours
	ahead = "{now + 3600000000}"
)

func world(t *testing.T, db *dbtest.DB) {
	t.Helper()
	void(t, db)
	epoch := fmt.Sprintf("{time %d}", store.Epoch.UnixMicro())
	byHand(
		t, db,
		`INSERT INTO {prefix}queue (queue_id, name) VALUES (1, 'q')`,
		`INSERT INTO {prefix}queue_block (queue_id, divided, state, lock_by, fence) VALUES (1, 3, 'LEASED', 'me', 5), (1, 5, 'FREE', '', 5)`,
		`INSERT INTO {prefix}node (name, state, expire_at) VALUES ('me', 'live', `+ahead+`), ('left', 'gone', `+ahead+`)`,
		`INSERT INTO {prefix}queue_worker (queue_id, node) VALUES (1, 'me'), (1, 'left')`,
		`INSERT INTO {prefix}job (queue_id, divided, priority, id, kind) VALUES (1, 3, 2, 7, 'x'), (1, 3, 2, 8, 'x'), (1, 3, 2, 9, 'x')`,
		`INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at, hold_key) VALUES
			(1, 3, 17, 'x', `+epoch+`, 'k'), (1, 3, 18, 'x', `+epoch+`, NULL), (1, 3, 19, 'x', `+epoch+`, 'l'), (1, 3, 20, 'x', `+ahead+`, NULL)`,
		`INSERT INTO {prefix}job_running (queue_id, divided, id, kind, lock_by) VALUES (1, 3, 27, 'x', 'me'), (1, 3, 28, 'x', 'me'), (1, 3, 29, 'x', 'me'), (1, 3, 30, 'x', 'nobody')`,
		`INSERT INTO {prefix}job_dead (queue_id, divided, id, kind, purge_at) VALUES (1, 3, 37, 'x', `+ago+
			`), (1, 3, 38, 'x', `+ahead+`), (1, 3, 39, 'x', NULL)`,
		`INSERT INTO {prefix}job_done (queue_id, divided, id, priority, attempt, crashes, outcome, error, worker, kind, started_at, ended_at, purge_at) VALUES
			(1, 3, 47, 2, 1, 0, 'done', '', 'me', 'x', {now}, {now}, `+ago+`), (1, 3, 48, 2, 1, 0, 'done', '', 'me', 'x', {now}, {now}, `+ahead+`),
			(1, 3, 49, 2, 1, 0, 'done', '', 'me', 'x', {now}, {now}, `+ago+`)`,
	)
}

// told are the arguments that name what there is in the world.
func told(at int) sqlrun.Args {
	first := int64(at + 7)
	args := sqlrun.Args{
		"queue": 1, "queues": []int64{1}, "to": 1, "name": "q", "names": []string{"q"}, "divided": 3, "generation": 1, "priority": 2, "id": first,
		"ids": []int64{first, first + 2}, "n": 2, "least": first, "most": first + 2, "places": store.Places{Queue: 1, Divided: 3, Priority: 2, IDs: []int64{first, first + 2}},
		"node": "me", "from": "nobody", "fence": 5, "batch": 100, "busy": 1, "does": nil, "was": rowRunning,
		"had": "", "charged": "x", "died": 1, "lost": 0, "clears": 0, "stops": 3,
		"state": rowSuspect, "lease": 1, "keep": 1, "soon": 0, "limit": 100, "since": store.Epoch.UnixMicro(), "rows": moving(first, Normal),
	}
	maps.Copy(args, past(first-1))
	return args
}

// moving are the rows of a move of the first and the third job.
func moving(first int64, priority int) (rows []sqlrun.Args) {
	for _, id := range []int64{first, first + 2} {
		rows = append(rows, sqlrun.Args{
			"queue": 1, "block": 3, "job": id, "priority": priority, "tries": 1, "died": 0, "charge": "", "why": "", "more": "",
			"later": 0, "halts": 0, "holds": nil, "target": 5, "at": 1, "seen": 4, "held": 5, "heir": "",
			"divided": 3, "after1": first - 1, "after2": first - 1, "after3": first - 1, "after4": first - 1,
		})
	}
	return rows
}

// past are cursors behind a job.
func past(id int64) sqlrun.Args {
	return sqlrun.Args{"after": id, "after1": id, "after2": id, "after3": id, "after4": id}
}

// mistold are arguments of which one names what there is not.
func mistold(at int, name string) sqlrun.Args {
	args, first := told(at), int64(at+7)
	rows := args["rows"].([]sqlrun.Args)
	for key, value := range map[string]any{
		"queue": 2, "queues": []int64{2}, "name": "r", "names": []string{"r"}, "divided": 4, "generation": 2, "priority": 3, "id": first - 2, "ids": []int64{first - 2, first + 4},
		"node": "you", "from": "you", "fence": 6, "since": store.Epoch.UnixMicro() + 1000,
	} {
		if key == name {
			args[key] = value
			if key == "queue" {
				delete(rows[0], key) // a row would be heard first
				delete(rows[1], key)
			}
			return args
		}
	}
	switch name {
	case "after", "after2":
		maps.Copy(args, past(first+3))
	case "row's after":
		for _, row := range rows {
			maps.Copy(row, past(first+3))
		}
	case "row's block":
		for _, row := range rows {
			row["divided"], row["block"] = 4, 4
		}
	case "row's id":
		args["rows"] = moving(first-2, Normal)[:1]
	case "row's fence":
		for _, row := range rows {
			row["seen"], row["held"] = 7, 7
		}
	case "row's priority":
		args["rows"] = moving(first, Low)
	case "place's queue":
		args["places"] = store.Places{Queue: 2, Divided: 3, Priority: 2, IDs: []int64{first, first + 2}}
	case "place's block":
		args["places"] = store.Places{Queue: 1, Divided: 4, Priority: 2, IDs: []int64{first, first + 2}}
	case "place's priority":
		args["places"] = store.Places{Queue: 1, Divided: 3, Priority: 3, IDs: []int64{first, first + 2}}
	case "place's id":
		args["places"] = store.Places{Queue: 1, Divided: 3, Priority: 2, IDs: []int64{first - 2, first + 4}}
	case "row's queue":
		rows[0]["queue"], rows[1]["queue"] = 2, 2
	default:
		panic(name)
	}
	return args
}

// reached runs a statement and tells how many rows it changes or finds.
func reached(t *testing.T, db *dbtest.DB, stmt *sqlrun.Stmt, args sqlrun.Args) int {
	t.Helper()
	if !strings.HasPrefix(stmt.Text(db.Dialect), "SELECT") {
		n, err := db.Exec(t.Context(), stmt, args)
		must(t, err)
		return int(n)
	}
	counts := strings.HasPrefix(stmt.Name, "queue.count-")
	rows, err := sqlrun.Select(t.Context(), &db.Session, stmt, args, func(rows *sql.Rows) (n int, err error) {
		if counts {
			columns, err := rows.Columns()
			must(t, err)
			dest := []any{&n}
			for range columns[1:] {
				dest = append(dest, new(any))
			}
			return n, rows.Scan(dest...)
		}
		return 1, nil
	})
	must(t, err)
	n := 0
	for _, one := range rows {
		n += one
	}
	return n
}

// reaches says how many rows of the world statements reach, and which arguments name
// them.
var reaches = []struct {
	stmt  *sqlrun.Stmt
	at    int
	n     int
	named string
	with  sqlrun.Args // where other things than the first are named
}{
	{store.GetQueue, 0, 1, "name", nil},
	{store.LockQueue, 0, 1, "name", nil},
	{store.GetNamed, 0, 1, "names", nil},
	{store.LockQueues, 0, 1, "names", nil},
	{store.SetOrdered, 0, 1, "queue", nil},
	{store.SetQueue, 0, 1, "queue", (&store.Settings{State: "active", KeyRetry: "hold"}).Args(1)},
	{store.SetBusy, 0, 1, "queues, node", nil},
	{store.ListWorkers, 0, 1, "queues", nil},
	{store.ListBlocks, 0, 2, "queues", nil},
	{store.HandOverBlocks, 0, 1, "row's queue, row's block, row's fence, node", nil},
	{store.NoteBatch, 0, 1, "queue, divided, fence, node", nil},
	{store.TrustBlocks, 0, 1, "row's queue, row's block, row's fence, node", nil},
	{store.StillMine, 0, 1, "queue, divided, fence, node", nil},
	{store.ClaimHolds, 0, 1, "queue, divided, fence, node", nil},
	{store.NodeLives, 0, 1, "node", nil},
	{store.RetireBlocks, 0, 2, "queue, generation", nil},
	{store.FetchReady, inReady, 3, "queue, divided, after2", nil},
	{store.ListReady, inReady, 3, "queue, divided, after2", nil},
	{store.LookFor, inReady, 2, "row's queue, row's block, row's after", nil},
	{store.LookForAny, inReady, 1, "queues", sqlrun.Args{}},
	{store.StatReady, inReady, 1, "queue, row's block, row's priority", nil},
	{store.StatDelayed, inDelayed, 1, "queue, row's block", nil},
	{store.StatRunning, inRunning, 1, "queue, row's block", nil},
	{store.StatDead, inDead, 1, "queue", nil},
	{store.AckReady, inReady, 2, "queue, divided, priority, ids", nil},
	{store.PresentReady, inReady, 2, "queue, divided, priority, ids", nil},
	{store.LockJobs, inReady, 2, "place's queue, place's block, place's priority, place's id", nil},
	{store.ClaimedReady, inReady, 2, "queue, divided, priority, ids", nil},
	{store.ContentReady, inReady, 2, "queue, divided, priority, ids", sqlrun.Args{"longest": 1000}},
	{store.FindReady, inReady, 1, "queue, divided, priority, id", nil},
	{store.CountReady, inReady, 3, "queue", sqlrun.Args{"recent": int64(0)}},
	{store.DelayReady, inReady, 2, "row's queue, row's block, row's id, row's priority", nil},
	{store.BuryReady, inReady, 2, "row's queue, row's block, row's id, row's priority", nil},
	{store.CheckOutReady, inReady, 2, "row's queue, row's block, row's id, row's priority", nil},
	{store.FetchDelayed, inDelayed, 3, "queue, divided, since", nil},
	{store.HeldKeys, inDelayed, 2, "queue, divided", sqlrun.Args{"after": ""}},
	{store.HoldingBlocks, inDelayed, 2, "row's queue, row's block", nil}, // the same one, for two rows
	{store.PresentDelayed, inDelayed, 2, "queue, divided, ids", nil},
	{store.LoadReady, inReady, 2, "queue, divided, priority, ids", nil},
	{store.LoadDelayed, inDelayed, 2, "queue, divided, ids", nil},
	{store.LoadRunning, inRunning, 2, "queue, divided, ids, node", nil},
	{store.AckDelayed, inDelayed, 2, "queue, divided, ids", nil},
	{store.LockDelayed, inDelayed, 2, "place's queue, place's block, place's id", nil},
	{store.ClaimedDelayed, inDelayed, 2, "queue, divided, ids", nil},
	{store.AttemptsDelayed, inDelayed, 2, "queue, divided, ids", nil},
	{store.Redelay, inDelayed, 2, "queue, divided, row's id", nil},
	{store.ListDelayed, inDelayed, 4, "queue, divided, after", nil},
	{store.ContentDelayed, inDelayed, 2, "queue, divided, ids", sqlrun.Args{"longest": 1000}},
	{store.FindDelayed, inDelayed, 1, "queue, divided, id", nil},
	{store.CountDelayed, inDelayed, 4, "queue", sqlrun.Args{"recent": int64(0)}},
	{store.HastenDelayed, inDelayed + 1, 1, "place's queue, place's block, place's id", nil},
	{store.BuryDelayed, inDelayed, 2, "row's queue, row's block, row's id", nil},
	{store.CheckOutDelayed, inDelayed, 2, "row's queue, row's block, row's id", nil},
	{store.DivideAnew, inDelayed, 2, "row's queue, row's block, row's id", nil},
	{store.LockLater, inDelayed, 1, "queue, divided", nil},
	{store.StandReady, inReady, 3, "queue, divided, after2", nil},
	{store.StandDelayed, inDelayed, 4, "queue, divided, after", nil},
	{store.StandRunning, inRunning, 4, "queue, divided, after", nil},
	{store.PassReady, inReady, 2, "row's queue, row's block, row's id, row's priority", nil},
	{store.RunningJobs, inRunning, 4, "queues", sqlrun.Args{"queue": -1}},
	{store.AdoptRunning, inRunning, 1, "queue, divided, id, from", sqlrun.Args{"id": 30}},
	{store.TakeBack, inRunning, 1, "queue, divided, id", nil},
	{store.SetTrial, inRunning, 1, "queue, divided, id, node", nil},
	{store.GetRunning, inRunning, 1, "queue, divided, id, node", nil},
	{store.AckRunning, inRunning, 2, "queue, divided, ids, node", nil},
	{store.LockRunning, inRunning, 2, "place's queue, place's block, place's id, node", nil},
	{store.ClaimedRunning, inRunning, 2, "queue, divided, ids, node", nil},
	{store.HandRunning, inRunning, 2, "queue, divided, ids, node", nil},
	{store.SaveProgress, inRunning, 1, "queue, divided, id, node", sqlrun.Args{"attempt": 0, "snapshot": nil, "percent": 5, "message": nil}},
	{store.NoteStuck, inRunning, 1, "queue, divided, id, node", sqlrun.Args{"attempt": 0, "error": "slow"}},
	{store.ListRunning, inRunning, 4, "queue, divided, after", nil},
	{store.ContentRunning, inRunning, 2, "queue, divided, ids", sqlrun.Args{"longest": 1000}},
	{store.FindRunning, inRunning, 1, "queue, divided, id", nil},
	{store.RemoveRunning, inRunning, 2, "queue, divided, ids", nil},
	{store.LockOut, inRunning, 2, "place's queue, place's block, place's id", nil},
	{store.CountRunning, inRunning, 4, "queue", sqlrun.Args{"recent": int64(0)}},
	{store.DelayRunning, inRunning, 2, "row's queue, row's block, row's id", nil},
	{store.BuryRunning, inRunning, 2, "row's queue, row's block, row's id", nil},
	{store.PresentDead, inDead, 2, "queue, divided, ids", nil},
	{store.ListDead, inDead, 3, "queue, after", nil},
	{store.ContentDead, inDead, 2, "queue, ids", sqlrun.Args{"longest": 1000}},
	{store.FindDead, inDead, 1, "queue, id", nil},
	{store.CountDead, inDead, 3, "queue", sqlrun.Args{"recent": int64(0)}},
	{store.LockDead, inDead, 2, "place's queue, place's block, place's id", nil},
	{store.ReviveDead, inDead, 2, "row's queue, row's block, row's id", nil},
	{store.PurgeDead, inDead, 2, "queue, divided, ids", nil},
	{store.KeepReady, inReady, 2, "row's queue, row's block, row's id, row's priority", nil},
	{store.KeepDelayed, inDelayed, 2, "row's queue, row's block, row's id", nil},
	{store.KeepRunning, inRunning, 2, "row's queue, row's block, row's id", nil},
	{store.ListDone, inDone, 3, "queue, after", nil},
	{store.ContentDone, inDone, 2, "queue, ids", sqlrun.Args{"longest": 1000}},
	{store.FindDone, inDone, 1, "queue, id", nil},
	{store.CountDone, inDone, 3, "queue", nil},
	{store.StatDone, inDone, 1, "queue", nil},
	{store.LockDone, inDone, 2, "place's queue, place's block, place's id", nil},
	{store.PurgeDone, inDone, 2, "queue, divided, ids", nil},
	{store.SurplusOf, inDead, 1, "queue", nil},
	{store.SurplusDead, inDead, 3, "queue", nil},
}

// Each statement reaches the rows that all its arguments name, and none if one of
// them names another queue, block, job or worker.
func TestReach(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, test := range reaches {
			if dbtest.Mutated != nil && dbtest.Mutated != test.stmt {
				continue
			}
			t.Run(test.stmt.Name, func(t *testing.T) {
				world(t, db)
				for name := range strings.SplitSeq(test.named, ", ") {
					args := mistold(test.at, name)
					for key, value := range test.with {
						if key != name {
							args[key] = value
						}
					}
					if n := reached(t, db, test.stmt, args); n != 0 {
						t.Errorf("with another %s it reaches %d rows", name, n)
					}
				}
				args := told(test.at)
				maps.Copy(args, test.with)
				if n := reached(t, db, test.stmt, args); n != test.n {
					t.Errorf("it reaches %d rows, not %d", n, test.n)
				}
			})
		}
	})
}

// holders are the possible states of the last holder: live, live and late, lost, lost before
// its lease expired (the clock was set back), gone, or forgotten.
func holders(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	byHand(t, db, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('live', 'live', `+ahead+`), ('late', 'live', `+ago+`),
		('lost', 'lost', `+ago+`), ('lost early', 'lost', `+ahead+`), ('gone', 'gone', `+ago+`), ('gone early', 'gone', `+ahead+`)`)
	return []string{"live", "late", "lost", "lost early", "gone", "gone early", "forgotten"}
}

// wantRows compares what there is, an SQL query's rows, with what should be.
func wantRows(t *testing.T, db *dbtest.DB, what, query string, want ...string) {
	t.Helper()
	if got := db.List(t, query, nil); !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// Only a process that is live and in time stays so, only one that is live and late is
// lost, and none comes back. What is left of those that ended long ago is removed.
func TestNodes(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, test := range []struct {
			stmt *sqlrun.Stmt
			want []string
		}{{store.Heartbeat, []string{"live"}}, {store.ExpelNode, []string{"late"}}, {store.LeaveNode, []string{"live", "late", "lost", "lost early"}}} {
			t.Run(test.stmt.Name, func(t *testing.T) {
				void(t, db)
				var changed []string
				for _, name := range holders(t, db) {
					n, err := db.Exec(t.Context(), test.stmt, sqlrun.Args{"node": name, "nodes": []string{name}, "lease": int64(3600e6)})
					must(t, err)
					if n > 1 {
						t.Errorf("it reaches %d processes", n)
					}
					if n > 0 {
						changed = append(changed, name)
					}
				}
				if !slices.Equal(changed, test.want) {
					t.Errorf("changed %q, not %q", changed, test.want)
				}
			})
		}
		t.Run("lease", func(t *testing.T) {
			void(t, db)
			for name, lease := range map[string]int64{"me": 3600e6, "you": 60e6, "they": 60e6} {
				must(t, orExec(db, store.JoinNode, sqlrun.Args{"node": name, "lease": lease, "under": "", "version": "", "drained": 0, "by": ""}))
			}
			must(t, orExec(db, store.Heartbeat, sqlrun.Args{"nodes": []string{"you"}, "lease": int64(3600e6)}))
			wantRows(t, db, "live for an hour", `SELECT name FROM {prefix}node WHERE state = 'live' AND expire_at > {now + 1800000000} ORDER BY name`, "me", "you")
		})
		t.Run("succeed", func(t *testing.T) {
			void(t, db)
			for name, under := range map[string]string{"me": "this", "you": "that", "they": "this", "gone": "this"} {
				must(t, orExec(db, store.JoinNode, sqlrun.Args{"node": name, "lease": int64(60e6), "under": under, "version": "", "drained": 0, "by": ""}))
			}
			must(t, orExec(db, store.LeaveNode, sqlrun.Args{"node": "gone"}))
			must(t, orExec(db, store.SucceedNodes, sqlrun.Args{"under": "this"}))
			wantRows(t, db, "states", `SELECT name, state FROM {prefix}node ORDER BY name`, "gone gone", "me lost", "they lost", "you live")
			must(t, orExec(db, store.JoinNode, sqlrun.Args{"node": "she", "lease": int64(60e6), "under": "other", "version": "", "drained": 0, "by": ""}))
			must(t, orExec(db, store.ResignNodes, sqlrun.Args{"under": "that"}))
			must(t, orExec(db, store.ResignNodes, sqlrun.Args{"under": "this"}))
			wantRows(t, db, "under", `SELECT name, under FROM {prefix}node ORDER BY name`, "gone this", "me this", "she other", "they this", "you ")
		})
		t.Run("forget", func(t *testing.T) {
			void(t, db)
			for _, name := range holders(t, db) {
				must(t, orExec(db, store.RegisterWorker, sqlrun.Args{"rows": []sqlrun.Args{{"queue": 1, "node": name, "busy": 0, "does": nil}}}))
			}
			long := sqlrun.Args{"since": int64(-3600e6)}
			must(t, orExec(db, store.ExpelIdleNodes, long))
			states := []string{"gone gone", "gone early gone", "late lost", "live live", "lost lost", "lost early lost"}
			wantRows(t, db, "states", `SELECT name, state FROM {prefix}node ORDER BY name`, states...)
			byHand(t, db, `UPDATE {prefix}node SET state = 'live' WHERE name = 'late'`) // whom somebody has to declare lost first
			must(t, orExec(db, store.ForgetNodes, long))
			must(t, orExec(db, store.ForgetWorkers, nil))
			left := []string{"gone early", "late", "live", "lost early"}
			wantRows(t, db, "processes", `SELECT name FROM {prefix}node ORDER BY name`, left...)
			wantRows(t, db, "workers", `SELECT node FROM {prefix}queue_worker ORDER BY node`, left...)
		})
	})
}

func orExec(db *dbtest.DB, stmt *sqlrun.Stmt, args sqlrun.Args) error {
	_, err := db.Exec(context.Background(), stmt, args)
	return err
}

// Blocks that are handed over, or trusted, are those that are named, and no others of the same worker with the same fence.
func TestOthersBlocksStay(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		byHand(t, db, `INSERT INTO {prefix}queue_block (queue_id, divided, state, lock_by, fence, suspects) VALUES
			(1, 3, 'LEASED', 'me', 5, 3), (1, 4, 'LEASED', 'me', 5, 3), (2, 3, 'LEASED', 'me', 5, 3), (2, 4, 'LEASED', 'me', 5, 3)`)
		for _, stmt := range []*sqlrun.Stmt{store.TrustBlocks, store.HandOverBlocks} {
			rows := []sqlrun.Args{{"queue": 1, "block": 3, "held": 5, "heir": ""}}
			if n, err := db.Exec(t.Context(), stmt, sqlrun.Args{"rows": rows, "node": "me"}); n != 1 || err != nil {
				t.Errorf("%s changed %d blocks: %v", stmt.Name, n, err)
			}
		}
		wantRows(t, db, "blocks", `SELECT queue_id, divided, state, suspects FROM {prefix}queue_block ORDER BY queue_id, divided`,
			"1 3 FREE 0", "1 4 LEASED 3", "2 3 LEASED 3", "2 4 LEASED 3")
	})
}

// Blocks are taken that are free or whose holders are not live, once, if they are what the taker saw. Their
// jobs come under suspicion if the holder died.
func TestTake(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for i, name := range holders(t, db) {
			byHand(t, db, fmt.Sprintf(`INSERT INTO {prefix}queue_block (queue_id, divided, state, lock_by, fence, suspects) VALUES (1, %d, 'LEASED', '%s', 5, 3)`, i, name))
		}
		byHand(t, db, `INSERT INTO {prefix}queue_block (queue_id, divided, state, lock_by, fence, suspects) VALUES
			(1, 7, 'LEASED', 'nobody', 5, 3), (1, 8, 'FREE', '', 5, 3), (1, 9, 'FREE', 'live', 5, 3), (1, 10, 'FREE', '', 4, 3), (1, 11, 'FREE', '', 5, 3),
			(2, 9, 'FREE', '', 5, 3), (2, 11, 'FREE', '', 5, 3)`)
		var rows []sqlrun.Args
		for divided := range 11 {
			row := sqlrun.Args{"queue": 1, "block": divided, "seen": 5, "was": "LEASED", "died": 1}
			switch divided {
			case 4:
				row["died"] = endLeft
			case 7:
				row["was"], row["died"] = "FREE", 0
			case 9, 10:
				row["was"], row["died"] = "FREE", 0
			}
			rows = append(rows, row)
		}
		rows = append(rows, sqlrun.Args{"queue": 2, "block": 11, "seen": 5, "was": "FREE", "died": 0})
		for _, n := range []int{7, 0} { // the second time the fence is another
			h := &holder{core: &core{db: db.DB}}
			byID := map[store.BlockID]*candidate{}
			for _, row := range rows {
				byID[store.BlockID{Queue: row["queue"].(int), Divided: row["block"].(int)}] = &candidate{}
			}
			got, err := h.mark(t.Context(), sqlrun.Args{"node": "me", "batch": 7}, rows, byID)
			if err != nil || len(got) != n {
				t.Errorf("%d blocks were taken, not %d: %v", len(got), n, err)
			}
		}
		wantRows(t, db, "blocks", `SELECT queue_id, divided, state, lock_by, fence, suspects, batch FROM {prefix}queue_block ORDER BY queue_id, divided`,
			"1 0 LEASED live 5 3 100", "1 1 LEASED late 5 3 100", "1 2 LEASED me 6 4 7", "1 3 LEASED me 6 4 7", "1 4 LEASED me 6 3 7",
			"1 5 LEASED me 6 4 7", "1 6 LEASED me 6 4 7", "1 7 LEASED nobody 5 3 100", "1 8 FREE  5 3 100", "1 9 LEASED me 6 0 7",
			"1 10 FREE  4 3 100", "1 11 FREE  5 3 100", "2 9 FREE  5 3 100", "2 11 LEASED me 6 0 7")
	})
}

// A checked out job can be taken over if it was handed over or its worker is not live, and its
// state and charges are what the taker saw.
func TestAdopt(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		all := holders(t, db)
		for i, name := range all {
			byHand(t, db, fmt.Sprintf(`INSERT INTO {prefix}job_running (queue_id, divided, id, kind, state, lock_by, crashes)
				VALUES (1, 3, %d, 'x', 'running', '%s', 3), (1, 3, %d, 'x', 'handed', '%[2]s', 3), (1, 3, %[4]d, 'x', 'alone', '%[2]s', 3)`, i, name, 10+i, 20+i))
		}
		byHand(t, db, `UPDATE {prefix}job_running SET charged = 'taken back since' WHERE id = 25`)
		byHand(t, db, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('me', 'live', `+ahead+`)`)
		for range 2 {
			for id := range 30 {
				if id%10 < len(all) {
					was, died := []string{rowRunning, rowHanded, rowAlone}[id/10], []int{1, 0, 1}[id/10]
					if id == 24 {
						was = rowSuspect // the late worker has written since
					}
					must(t, orExec(db, store.AdoptRunning, sqlrun.Args{
						"queue": 1, "divided": 3, "id": id, "from": all[id%10],
						"was": was, "had": "", "node": "me", "fence": 6, "state": rowSuspect, "died": died, "lost": 1 - died, "charged": all[id%10],
					}))
				}
			}
		}
		wantRows(t, db, "jobs", `SELECT id, state, lock_by, fence, crashes FROM {prefix}job_running ORDER BY id`,
			"0 running live 0 3", "1 running late 0 3", "2 suspect me 6 4", "3 suspect me 6 4", "4 suspect me 6 4",
			"5 suspect me 6 4", "6 suspect me 6 4",
			"10 suspect me 6 3", "11 suspect me 6 3", "12 suspect me 6 3", "13 suspect me 6 3", "14 suspect me 6 3",
			"15 suspect me 6 3", "16 suspect me 6 3",
			"20 alone live 0 3", "21 alone late 0 3", "22 suspect me 6 4", "23 suspect me 6 4", "24 alone "+all[4]+" 0 3",
			"25 alone "+all[5]+" 0 3", "26 suspect me 6 4")
		wantRows(t, db, "charges", `SELECT losses, COUNT(*) FROM {prefix}job_running WHERE lock_by = 'me' AND charged <> '' GROUP BY losses ORDER BY losses`, "0 8", "1 7")
	})
}

// Checked out jobs are read in parts, which together have each once, wherever a part ends.
func TestRunningInPages(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		var want []string
		for queue := 1; queue <= 3; queue++ {
			for divided := range 2 {
				for _, id := range []int{-2, 5, 9} {
					byHand(t, db, fmt.Sprintf(`INSERT INTO {prefix}job_running (queue_id, divided, id, kind, lock_by) VALUES (%d, %d, %d, 'x', 'n')`, queue, divided, id))
					if queue != 2 {
						want = append(want, fmt.Sprint(queue, divided, id))
					}
				}
			}
		}
		for limit := 1; limit <= len(want)+1; limit++ {
			rows, err := client(t, db, Options{}).readRunning(t.Context(), []int{3, 1}, limit)
			must(t, err)
			var got []string
			for _, r := range rows {
				got = append(got, fmt.Sprint(r.queue, r.divided, r.id))
			}
			if !slices.Equal(got, want) {
				t.Errorf("with %d at a time it reads %v, not %v", limit, got, want)
			}
		}
	})
}

// Lists of blocks, workers and running jobs show whose holders are live, in time and gone,
// including forgotten ones; blocks are in the order that tells generations apart.
func TestWhoIsLive(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		all := holders(t, db)
		for i := range all {
			name := all[len(all)-1-i]
			byHand(
				t, db,
				fmt.Sprintf(`INSERT INTO {prefix}queue_block (queue_id, divided, state, lock_by) VALUES (1, %d, 'LEASED', '%s')`, len(all)-1-i, name),
				fmt.Sprintf(`INSERT INTO {prefix}job_running (queue_id, divided, id, kind, lock_by) VALUES (1, 3, %d, 'x', '%s')`, len(all)-1-i, name),
				fmt.Sprintf(`INSERT INTO {prefix}queue_worker (queue_id, node) VALUES (1, '%s')`, name),
			)
		}
		c := client(t, db, Options{})
		rows, err := c.blocks(t.Context(), 1)
		must(t, err)

		running, err := c.readRunning(t.Context(), []int{1}, runningPage)
		must(t, err)
		if len(rows) != len(all) || len(running) != len(all) {
			t.Fatalf("%d blocks and %d jobs", len(rows), len(running))
		}
		for i, name := range all {
			live, inTime, left := i < 2, name == "live" || strings.HasSuffix(name, "early"), strings.HasPrefix(name, "gone")
			if r := rows[i]; r.Divided != i || r.LockBy != name || r.Live != live || r.InTime != inTime || r.Left != left {
				t.Errorf("block %d of the %s one: %+v", i, name, r)
			}
			if r := running[i]; r.lockBy != name || r.live != live || r.inTime != inTime || r.left != left {
				t.Errorf("job of the %s one: %+v", name, r)
			}
		}
		on, err := sqlrun.Select(t.Context(), &db.Session, store.ListWorkers, sqlrun.Args{"queues": []int64{1}}, func(rows *sql.Rows) (r share.Worker, err error) {
			var kinds sql.NullString
			return r, rows.Scan(new(int), &r.Node, &r.Busy, &r.InTime, &r.Drained, &r.By, &kinds)
		})
		must(t, err)
		if got := fmt.Sprint(on); got != "[{late 0 false false   <nil>} {live 0 true false   <nil>}]" {
			t.Errorf("workers are %s", got)
		}
	})
}

// What is done already is not done again, and is no error: by one of several who come
// at once.
func TestOnce(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		world(t, db)
		for _, test := range []struct {
			stmt *sqlrun.Stmt
			args sqlrun.Args
		}{
			{store.CreateQueues, sqlrun.Args{"rows": []sqlrun.Args{{"name": "r"}, {"name": "s"}}}},
			{store.RegisterWorker, sqlrun.Args{"rows": []sqlrun.Args{{"queue": 1, "node": "you", "busy": 0, "does": nil}}}},
		} {
			must(t, orExec(db, test.stmt, test.args))
			if err := orExec(db, test.stmt, test.args); err != nil {
				t.Errorf("%s: %v", test.stmt.Name, err)
			}
		}
		for _, stmt := range []*sqlrun.Stmt{store.SetOrdered, store.AdoptRunning, store.HastenDelayed} {
			args := told(inDelayed)
			args["id"] = 20
			switch stmt {
			case store.AdoptRunning:
				args["id"] = 30
			case store.HastenDelayed:
				args = told(inDelayed + 1)
			}
			if first, second := reached(t, db, stmt, args), reached(t, db, stmt, args); first != 1 || second != 0 {
				t.Errorf("%s: %d rows, and then %d", stmt.Name, first, second)
			}
		}
	})
}

// Jobs to be moved, and their block's holder, stay the same until the transaction ends.
// Removing old jobs does not wait for rows that others have locked.
func TestLocks(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		world(t, db)
		for _, test := range []struct {
			stmt *sqlrun.Stmt
			at   int
			free string // which are still to be had
			want []string
		}{
			{store.LockQueue, 0, `SELECT queue_id FROM {prefix}queue`, nil},
			{store.LockQueues, 0, `SELECT queue_id FROM {prefix}queue`, nil},
			{store.ClaimHolds, 0, `SELECT divided FROM {prefix}queue_block WHERE queue_id = 1 AND divided = 3`, nil},
			{store.StillMine, 0, `SELECT divided FROM {prefix}queue_block WHERE queue_id = 1 AND divided = 3`, nil},
			{store.LockJobs, inReady, `SELECT id FROM {prefix}job WHERE queue_id = 1 AND divided = 3 AND priority = 2 ORDER BY id`, []string{"8"}},
			{
				store.LockDelayed, inDelayed, `SELECT id FROM {prefix}job_delayed WHERE queue_id = 1 AND divided = 3 AND id < 20 ORDER BY id`,
				[]string{"18"},
			},
			{store.LockLater, inDelayed, `SELECT id FROM {prefix}job_delayed WHERE queue_id = 1 AND divided = 3 ORDER BY id`, []string{"17", "18", "19"}},
			{
				store.LockRunning, inRunning, `SELECT id FROM {prefix}job_running WHERE queue_id = 1 AND divided = 3 AND id < 30 ORDER BY id`,
				[]string{"28"},
			},
			{store.LockOut, inRunning, `SELECT id FROM {prefix}job_running WHERE queue_id = 1 AND divided = 3 AND id < 30 ORDER BY id`, []string{"28"}},
			{store.LockDead, inDead, `SELECT id FROM {prefix}job_dead WHERE queue_id = 1 ORDER BY id`, []string{"38"}},
			{store.LockDone, inDone, `SELECT id FROM {prefix}job_done WHERE queue_id = 1 ORDER BY id`, []string{"48"}},
		} {
			must(t, db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
				if _, err := sqlrun.Select(ctx, tx, test.stmt, told(test.at),
					func(*sql.Rows) (none struct{}, err error) { return none, nil }); err != nil {
					return err
				}
				wantRows(t, db, test.stmt.Name, test.free+" {skip_locked}", test.want...)
				if test.stmt == store.LockDone {
					if n := reached(t, db, store.OutdatedDone, sqlrun.Args{"limit": 9}); n != 0 {
						t.Errorf("%d jobs that are done are to be removed, and somebody else has locked them", n)
					}
				}
				if test.stmt == store.LockDead {
					if n := reached(t, db, store.OutdatedDead, sqlrun.Args{"limit": 9}); n != 0 {
						t.Errorf("%d jobs are to be removed that somebody else has locked", n)
					}
					if n := reached(t, db, store.SurplusDead, sqlrun.Args{"queue": 1, "most": 37, "limit": 9}); n != 0 {
						t.Errorf("%d jobs are too many, and somebody else has locked them", n)
					}
				}
				return nil
			}))
		}
	})
}

// A worker moves jobs only of a block that it still has, by its name and fence; otherwise
// nothing changes.
func TestMovesOfALostBlock(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		for holder, lost := range map[string]bool{"lock_by = 'you'": true, "fence = 6": true, "divided = 4": true, "fence = 5": false} {
			world(t, db)
			byHand(t, db, `UPDATE {prefix}queue_block SET `+holder+` WHERE divided = 3`)
			b := blockThree(w)
			var moves []*move
			for i, what := range []verdict{failed, buried} {
				for from, id := range map[table]int64{tableReady: 7, tableDelayed: 17} {
					d := ready(b, id+2*int64(i))
					d.state.From, d.state.RunAt = from, store.Epoch.UnixMicro()
					moves = append(moves, &move{d: d, verdict: what, attempts: 1})
				}
			}
			err := w.flush.commitMoves(t.Context(), b, "me", moves)
			if errors.Is(err, errBlockLost) != lost || !lost && err != nil {
				t.Errorf("%s: %v", holder, err)
			}
			want := []string{
				"job 7", "job 8", "job 9", "delayed 17 0", "delayed 18 0", "delayed 19 0", "delayed 20 0",
				"dead 37", "dead 38", "dead 39",
			}
			if !lost {
				want = []string{
					"job 8", "delayed 7 1", "delayed 17 1", "delayed 18 0", "delayed 20 0", "dead 9",
					"dead 19", "dead 37", "dead 38", "dead 39",
				}
			}
			got := db.List(t, `SELECT 'job', id FROM {prefix}job ORDER BY id`, nil)
			got = append(got, db.List(t, `SELECT 'delayed', id, attempt FROM {prefix}job_delayed ORDER BY id`, nil)...)
			got = append(got, db.List(t, `SELECT 'dead', id FROM {prefix}job_dead ORDER BY id`, nil)...)
			if !slices.Equal(got, want) {
				t.Errorf("%s:\ngot  %q\nwant %q", holder, got, want)
			}
		}
	})
}

// blockThree is block 3 of the world as a worker has it.
func blockThree(w *Worker) *tenure {
	b := newTenure(&workQueue{h: &w.holder, id: 1, name: "q", set: &store.Queue{}})
	b.divided, b.fence = 3, 5
	return b
}

// Of the delayed jobs of an old block those go where they would be now that are not
// due soon and hold no key, if the block is still this worker's.
func TestForward(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		to := store.Generation{Number: 2, First: 5, Blocks: 1}
		for holder, n := range map[string]int{"fence = 5": 1, "fence = 6": 0} {
			world(t, db)
			byHand(t, db, `UPDATE {prefix}queue_block SET `+holder+` WHERE divided = 3`,
				`INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at, hold_key) VALUES (1, 3, 21, 'x', `+ahead+`, 'm')`,
				// with one id
				`INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at) VALUES (1, 3, 22, 'x', `+ahead+`), (1, 5, 22, 'y', `+ahead+`)`)
			b := blockThree(w)
			err := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
				moved, _, err := w.forwardSome(ctx, tx, b, to, "me", nil)
				if len(moved) != 1 {
					t.Errorf("%s: %d jobs", holder, len(moved))
				}
				return err
			})
			if lost := n == 0; errors.Is(err, errBlockLost) != lost || !lost && err != nil {
				t.Errorf("%s: %v", holder, err)
			}
			wantRows(t, db, holder, `SELECT divided, id, kind FROM {prefix}job_delayed WHERE divided > 3 OR id > 19 ORDER BY id, divided`,
				fmt.Sprintf("%d 20 x", 3+2*n), "3 21 x", "3 22 x", "5 22 y")
		}
	})
}

// Moves whose answer was lost, though they were committed, are made again, and change
// nothing more; and the jobs are known to be where they were to go.
func TestMovesMadeTwice(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		b := blockThree(w)
		all := func() []string {
			return db.List(t, `SELECT 'job', id, 0, 0, '' FROM {prefix}job UNION ALL SELECT 'delayed', id, attempt, 0, '' FROM {prefix}job_delayed
				UNION ALL SELECT 'running', id, attempt, 0, lock_by FROM {prefix}job_running UNION ALL SELECT 'dead', id, attempt, 0, detail FROM {prefix}job_dead ORDER BY 2`, nil)
		}
		for from, id := range map[table]int64{tableReady: 7, tableDelayed: 17, tableRunning: 27} {
			for _, to := range []move{{verdict: failed}, {verdict: buried}, {out: true}} {
				if to.out && from == tableRunning {
					continue
				}
				world(t, db)
				what := fmt.Sprintf("job %d, verdict %d, checked out %v", id, to.verdict, to.out)
				to.d, to.attempts = ready(b, id), 1
				to.d.state.From, to.d.state.RunAt = from, store.Epoch.UnixMicro()
				moves := []*move{&to}
				var after [2][]string
				for i := range after {
					if err := w.flush.commitMoves(t.Context(), b, "me", moves); err != nil {
						t.Errorf("%s, time %d: %v", what, i+1, err)
					}
					if !moves[0].here {
						t.Errorf("%s, time %d: it is taken for removed", what, i+1)
					}
					after[i] = all()
				}
				if !slices.Equal(after[0], after[1]) {
					t.Errorf("%s:\nonce  %q\ntwice %q", what, after[0], after[1])
				}
			}
		}
	})
}

// Each priority is read from its own cursor on, in order, the most urgent jobs first.
func TestFetch(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for id := 9; id > 0; id-- { // not in their order, as they come late
			byHand(t, db, fmt.Sprintf(`INSERT INTO {prefix}job (queue_id, divided, priority, id, kind) VALUES (1, 3, %d, %d, 'x')`, Idle-id%4, id))
		}
		for limit, want := range map[int]string{9: "[3 7 6 5 9 8]", 2: "[3 7]"} {
			for _, stmt := range []*sqlrun.Stmt{store.FetchReady, store.ListReady} {
				var ids []int64
				must(t, db.Pipeline(t.Context(), &sqlrun.Step{
					Stmt: stmt, Args: sqlrun.Args{"queue": 1, "divided": 3, "limit": limit, "after1": 2, "after2": 3, "after3": 1, "after4": 4},
					Scan: func(row *sqlrun.Row) error { ids = append(ids, row.Int(0)); return nil },
				}))
				if got := fmt.Sprint(ids); got != want && (stmt == store.FetchReady || limit == 9) {
					t.Errorf("%s, limit %d: %s, not %s", stmt.Name, limit, got, want)
				}
			}
		}
	})
}

// Delayed jobs are read from a time on, in the order of their times, when they are due;
// and of each block it is known when the next one is.
func TestDue(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		at := func(seconds int64) int64 { return store.Epoch.UnixMicro() + seconds*1e6 }
		put := func(queue, divided, id int, run string) {
			byHand(t, db, fmt.Sprintf(`INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at) VALUES (%d, %d, %d, 'x', %s)`,
				queue, divided, id, run))
		}
		for id, seconds := range []int64{10, 40, 30, 20, 20} {
			put(1, 3, id, fmt.Sprintf("{time %d}", at(seconds)))
		}
		put(1, 3, 9, ahead)
		put(1, 4, 7, fmt.Sprintf("{time %d}", at(25)))
		put(0, 3, 6, fmt.Sprintf("{time %d}", at(22))) // of queues before and after it
		put(2, 3, 8, fmt.Sprintf("{time %d}", at(22)))
		for _, x := range []struct {
			limit        int
			since, after int64
			want         string
		}{
			{9, at(20), 0, "[3 4 2 1]"},
			{3, at(20), 0, "[3 4 2]"},
			{9, at(20), 3, "[4 2 1]"},
			{1, at(20), 3, "[4]"},
			{9, at(20), 4, "[2 1]"},
			{9, at(20) - 1000, 9, "[3 4 2 1]"},
		} {
			var ids []int64
			must(t, db.Pipeline(t.Context(), &sqlrun.Step{
				Stmt: store.FetchDelayed,
				Args: sqlrun.Args{"queue": 1, "divided": 3, "limit": x.limit, "since": x.since, "after": x.after},
				Scan: func(row *sqlrun.Row) error { ids = append(ids, row.Int(0)); return nil },
			}))
			if got := fmt.Sprint(ids); got != x.want {
				t.Errorf("%+v: due are %s", x, got)
			}
		}
		rows := []sqlrun.Args{{"queue": 1, "block": 3, "since": at(21)}, {"queue": 1, "block": 4, "since": at(0)}, {"queue": 1, "block": 5, "since": at(0)}}
		found, err := sqlrun.Select(t.Context(), &db.Session, store.NextDelayed, sqlrun.Args{"rows": rows},
			func(rows *sql.Rows) (text string, err error) {
				var divided int
				var now, us sql.NullInt64
				err = rows.Scan(new(int), &divided, &now, &us)
				if us.Valid {
					us.Int64 -= store.Epoch.UnixMicro()
				}
				return fmt.Sprint(divided, us.Valid, us.Int64/1e6), err
			})
		must(t, err)
		if got := fmt.Sprint(found); got != "[3 true 30 4 true 25 5 false 0]" {
			t.Errorf("next are %s", got)
		}
	})
}

// Blocks are drained when none of their jobs is left in any state, and their age is
// that of what came after them. Jobs of blocks that are no more are found.
func TestDrained(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		put := func(table string, queue, divided int) {
			byHand(t, db, fmt.Sprintf(map[string]string{
				"job":         `INSERT INTO {prefix}job (queue_id, divided, priority, id, kind) VALUES (%d, %d, 2, 7, 'x')`,
				"job_delayed": `INSERT INTO {prefix}job_delayed (queue_id, divided, run_at, id, kind) VALUES (%d, %d, {now}, 7, 'x')`,
				"job_running": `INSERT INTO {prefix}job_running (queue_id, divided, id, kind, lock_by) VALUES (%d, %d, 7, 'x', 'me')`,
			}[table], queue, divided))
		}
		for _, table := range []string{"job", "job_delayed", "job_running"} {
			for _, where := range [][2]int{{1, 2}, {1, 3}, {1, 4}, {1, 5}, {2, 2}, {2, 3}} {
				void(t, db)
				put(table, where[0], where[1])
				within := where == [2]int{1, 3} || where == [2]int{1, 4}
				var empty bool
				var age sql.NullInt64
				must(t, db.Get(t.Context(), store.DrainedBlocks, sqlrun.Args{"queue": 1, "first": 3, "last": 4, "generation": 1}, &empty, &age))
				if empty == within {
					t.Errorf("with a %s of queue and block %v it says that it is empty: %v", table, where, empty)
				}
				var stray, later sql.NullInt64
				must(t, db.Get(t.Context(), store.StrayBlocks, sqlrun.Args{"queue": 1, "gaps": []sqlrun.Args{{"above": 2, "below": 4}}}, &stray, &later))
				if found := stray.Valid || later.Valid; found != (where == [2]int{1, 3} && table != "job_running") {
					t.Errorf("with a %s of queue and block %v it finds %v %v", table, where, stray, later)
				}
			}
		}
		void(t, db)
		for _, block := range []string{
			"1, 0, 1, {now + -9000000000}", "1, 1, 2, {now + -5400000000}",
			"1, 2, 3, {now}", "2, 0, 2, {now + -7200000000}",
		} {
			byHand(t, db, `INSERT INTO {prefix}queue_block (queue_id, divided, generation, insert_time) VALUES (`+block+`)`)
		}
		var empty bool
		var age int64
		must(t, db.Get(t.Context(), store.DrainedBlocks, sqlrun.Args{"queue": 1, "first": 0, "last": 0, "generation": 1}, &empty, &age))
		if age < 5400e6 || age >= 7200e6 {
			t.Errorf("the next generation is %d µs old", age)
		}
	})
}

// Blocks that are no more are made again for all jobs that came to them, also while one
// of them has jobs that are not due for long.
func TestRecall(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		world(t, db)
		byHand(
			t, db,
			`DELETE FROM {prefix}job`,
			`DELETE FROM {prefix}job_delayed`,
			`INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at) VALUES (1, 0, 1, 'x', `+ahead+
				`), (1, 1, 2, 'x', `+ago+`), (1, 2, 3, 'x', `+ago+`), (1, 3, 4, 'x', `+ago+`)`,
			`INSERT INTO {prefix}job (queue_id, divided, priority, id, kind) VALUES (1, 2, 2, 5, 'x'), (1, 3, 2, 6, 'x'), (1, 9, 2, 7, 'x')`,
			`INSERT INTO {prefix}queue_block (queue_id, divided) VALUES (2, 1), (2, 2)`,
		)
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		must(t, recallAll(t, w, &workQueue{h: &w.holder, id: 1, name: "q", set: &store.Queue{ID: 1}}))
		wantRows(t, db, "blocks", `SELECT divided, generation, fence FROM {prefix}queue_block WHERE queue_id = 1 ORDER BY divided`,
			"0 0 0", "1 0 0", "2 0 0", "3 1 5", "5 1 5")
	})
}

// The settings of a queue include its own blocks, each generation once, and each queue gets
// blocks of its own.
func TestBlocksOfQueues(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		for _, name := range []string{"a", "b", "c"} {
			enqueue(t, c, Job{Queue: name, Kind: "x"})
			if name == "c" {
				continue
			}
			must(t, adminOf(c).Resize(t.Context(), name, 3))
			must(t, adminOf(c).Resize(t.Context(), name, 4))
			must(t, adminOf(c).Pause(t.Context(), name, ""))
		}
		must(t, adminOf(c).Resize(t.Context(), "b", 5))
		var got []string
		all, err := store.SelectQueues(t.Context(), &c.db.Session, store.ListQueues, sqlrun.Args{"after": "", "limit": 9})
		must(t, err)
		for _, name := range []string{"a", "b", "c"} {
			q, err := c.read(t.Context(), name)
			must(t, err)
			all = append(all, q)
		}
		for _, q := range all {
			text := fmt.Sprint(q.Name, " ", q.State, " ", q.Blocks)
			for i, g := range q.Generations {
				text += fmt.Sprintf(" %d: %d+%d", g.Number, g.First, g.Blocks)
				if i > 0 && g.From < q.Generations[i-1].From {
					text += " too early"
				}
			}
			got = append(got, text)
		}
		one := []string{"a paused 4 1: 0+2 2: 2+3 3: 5+4", "b paused 5 1: 0+2 2: 2+3 3: 5+4 4: 9+5", "c active 2 1: 0+2"}
		if want := slices.Concat(one, one); !slices.Equal(got, want) {
			t.Errorf("queues are %q, not %q", got, want)
		}
	})
}

// A dead job is kept for as long as was said when it died, or always.
func TestKept(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		for keep, left := range map[int64][]string{0: {"8"}, 3600e6: {"7", "8", "9"}, -1: {"7", "8", "9"}} {
			world(t, db)
			byHand(t, db, `DELETE FROM {prefix}job_dead`)
			for _, stmt := range []*sqlrun.Stmt{store.LockJobs, store.BuryReady, store.AckReady} {
				args := told(inReady)
				args["keep"] = keep
				reached(t, db, stmt, args)
			}
			must(t, w.sweeper.purge(t.Context(), store.OutdatedDead, sqlrun.Args{}, store.PurgeDead))
			wantRows(t, db, fmt.Sprint("kept for ", keep),
				`SELECT id FROM {prefix}job UNION ALL SELECT id FROM {prefix}job_dead ORDER BY id`, left...)
		}
	})
}

// A job that is done is kept for as long as was said then.
func TestKeptDone(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		for keep, left := range map[int64][]string{0: {"8"}, 3600e6: {"7", "8", "9"}} {
			world(t, db)
			byHand(t, db, `DELETE FROM {prefix}job_done`)
			for _, stmt := range []*sqlrun.Stmt{store.LockJobs, store.KeepReady, store.AckReady} {
				args := told(inReady)
				args["keep"] = keep
				reached(t, db, stmt, args)
			}
			must(t, w.sweeper.purge(t.Context(), store.OutdatedDone, sqlrun.Args{}, store.PurgeDone))
			wantRows(t, db, fmt.Sprint("kept for ", keep),
				`SELECT id FROM {prefix}job UNION ALL SELECT id FROM {prefix}job_done ORDER BY id`, left...)
		}
	})
}

// A job that is ready or due could begin, but not one of another queue, nor one behind
// another of its key that runs or waits for its retry.
func TestPending(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		ready := func(place, id, key string) string {
			return "INSERT INTO {prefix}job (queue_id, divided, priority, id, kind, job_key) VALUES (" + place + ", 2, " + id + ", 'x', " + key + ")"
		}
		delayed := func(place, id, key, at, hold string) string {
			return "INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, job_key, run_at, hold_key) VALUES (" +
				place + ", " + id + ", 'x', " + key + ", " + at + ", " + hold + ")"
		}
		running := func(place, id, key string) string {
			return "INSERT INTO {prefix}job_running (queue_id, divided, id, kind, job_key, lock_by) VALUES (" +
				place + ", " + id + ", 'x', " + key + ", 'me')"
		}
		const here, there, elsewhere = "1, 3", "1, 5", "2, 3"
		for i, test := range []struct {
			want bool
			rows []string
		}{
			{false, nil},
			{true, []string{ready(here, "1", "NULL")}},
			{true, []string{ready(there, "1", "'k'")}},
			{false, []string{ready("1, 4", "1", "NULL")}}, // a block that there is not: see strays
			{false, []string{ready(elsewhere, "1", "NULL"), delayed(elsewhere, "2", "NULL", ago, "NULL")}},
			{false, []string{delayed(here, "1", "NULL", ahead, "NULL"), running(here, "2", "'k'")}},
			{true, []string{delayed(there, "1", "NULL", ago, "NULL")}},
			{false, []string{delayed(here, "1", "'k'", ahead, "'k'"), ready(here, "2", "'k'"), delayed(here, "3", "'k'", ago, "NULL")}},
			{true, []string{delayed(here, "1", "'k'", ahead, "'k'"), ready(here, "2", "'l'")}},
			{true, []string{delayed(here, "1", "'k'", ahead, "'k'"), ready(there, "2", "'k'")}},
			{true, []string{delayed(elsewhere, "1", "'k'", ahead, "'k'"), ready(here, "2", "'k'")}},
			{true, []string{delayed(here, "1", "'k'", ago, "'k'"), ready(here, "2", "'k'")}},
			{true, []string{delayed(here, "1", "'k'", ago, "'k'"), delayed(here, "2", "'k'", ago, "'k'")}},
			{false, []string{running(here, "1", "'k'"), ready(here, "2", "'k'"), delayed(here, "3", "'k'", ago, "NULL")}},
			{true, []string{running(here, "1", "'k'"), ready(here, "2", "'l'")}},
			{true, []string{running(there, "1", "'k'"), ready(here, "2", "'k'")}},
			{true, []string{running(elsewhere, "1", "'k'"), ready(here, "2", "'k'")}},
		} {
			void(t, db)
			byHand(t, db, `INSERT INTO {prefix}queue_block (queue_id, divided) VALUES (1, 3), (1, 5), (2, 3)`)
			byHand(t, db, test.rows...)
			if n := reached(t, db, store.PendingBlock, sqlrun.Args{"queue": 1}); (n > 0) != test.want {
				t.Errorf("case %d: %d blocks, want %t", i, n, test.want)
			}
			for kind, want := range map[string]bool{"x": test.want, "y": false} {
				if n := reached(t, db, store.PendingKinds, sqlrun.Args{"queue": 1, "kinds": []string{kind}}); (n > 0) != want {
					t.Errorf("case %d, kind %s: %d blocks, want %t", i, kind, n, want)
				}
			}
		}
	})
}

// recallAll makes blocks of a queue again that are missing.
func recallAll(t *testing.T, w *Worker, q *workQueue) error {
	t.Helper()
	rows, err := w.c.blocks(t.Context(), q.id)
	must(t, err)
	return w.sweeper.recall(t.Context(), q, rows)
}
