package bench

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The floors of package queue: the least SQL for the same work, as one would write it by hand for
// one program and one engine. Nothing survives a crash of a worker. raw_job is a copy of the table
// of ready jobs. raw_skip is a table as in queues whose workers lock rows.

const (
	rawBlocks = 16
	rawConns  = 4 // for draining
)

// rawID is the last row id in use.
var rawID atomic.Int64

var rawSkip = map[string]string{"postgres": "JSON", "mysql": "LONGTEXT", "sqlite": "TEXT"}

func rawQueue(t *testing.T, b *bed) {
	t.Helper()
	eager := ""
	switch b.Dialect.Name {
	case "postgres":
		eager = " WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0)"
		b.Do(t, `CREATE TABLE raw_job (LIKE {prefix}job INCLUDING ALL)`+eager, nil)
	case "mysql":
		b.Do(t, `CREATE TABLE raw_job LIKE {prefix}job`, nil)
	default:
		var text string
		b.Scan(t, `SELECT sql FROM sqlite_master WHERE name = '`+b.Prefix()+`job'`, nil, &text)
		b.Do(t, strings.ReplaceAll(text, b.Prefix()+"job", "raw_job"), nil)
	}
	b.Do(t, `CREATE TABLE raw_skip (queue_id INT NOT NULL, id BIGINT NOT NULL, kind VARCHAR(200) NOT NULL, payload `+
		rawSkip[b.Dialect.Name]+`, PRIMARY KEY (queue_id, id))`+eager, nil)
}

func rawRows(t *testing.T, b *bed, table string) (n int64) {
	t.Helper()
	b.Scan(t, `SELECT COUNT(*) FROM `+table, nil, &n)
	return n
}

// A link is a connection of the driver's own type.
type link struct {
	d  *sqlrun.Dialect
	pg *pgx.Conn
	db *sql.Conn // for the other engines
}

func connect(t *testing.T, b *bed) *link {
	t.Helper()
	l := &link{d: b.Dialect}
	var err error
	if b.Dialect.Name == "postgres" {
		l.pg, err = pgx.Connect(t.Context(), b.URL)
		t.Cleanup(func() { _ = l.pg.Close(context.Background()) })
	} else {
		l.db, err = open(t, b.URL, 1).Pool().Conn(t.Context())
		t.Cleanup(func() { _ = l.db.Close() })
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func connectMany(t *testing.T, b *bed, n int) chan *link {
	t.Helper()
	links := make(chan *link, n)
	for range n {
		links <- connect(t, b)
	}
	return links
}

// with calls f with one of some links.
func with(links chan *link, f func(l *link) error) error {
	l := <-links
	defer func() { links <- l }()
	return f(l)
}

// copyIn loads n jobs with COPY.
func (l *link) copyIn(ctx context.Context, first, n int) error {
	id := rawID.Add(int64(n)) - int64(n) + 1
	_, err := l.pg.CopyFrom(ctx, pgx.Identifier{"raw_job"}, []string{"queue_id", "divided", "priority", "id", "kind", "payload"},
		pgx.CopyFromSlice(n, func(i int) ([]any, error) {
			id := id + int64(i)
			return []any{1, id % rawBlocks, 2, id, "noop", payload(first + i)}, nil
		}))
	return err
}

// insert writes jobs with one statement.
func (l *link) insert(ctx context.Context, numbers ...int) error {
	id := rawID.Add(int64(len(numbers))) - int64(len(numbers)) + 1
	if l.pg != nil {
		blocks, ids, payloads := make([]int32, len(numbers)), make([]int64, len(numbers)), make([]string, len(numbers))
		for i, n := range numbers {
			ids[i] = id + int64(i)
			blocks[i], payloads[i] = int32(ids[i]%rawBlocks), string(payload(n))
		}
		_, err := l.pg.Exec(ctx, `INSERT INTO raw_job (queue_id, divided, priority, id, kind, payload)
			SELECT 1, d, 2, i, 'noop', CAST(p AS JSON) FROM unnest($1::INT[], $2::BIGINT[], $3::TEXT[]) AS r (d, i, p)`, blocks, ids, payloads)
		return err
	}
	args := make([]any, 0, 3*len(numbers))
	for i, n := range numbers {
		args = append(args, (id+int64(i))%rawBlocks, id+int64(i), string(payload(n)))
	}
	_, err := l.db.ExecContext(ctx, `INSERT INTO raw_job (queue_id, divided, priority, id, kind, payload) VALUES `+
		strings.Repeat(`(1, ?, 2, ?, 'noop', ?), `, len(numbers)-1)+`(1, ?, 2, ?, 'noop', ?)`, args...)
	return err
}

// insertOne writes one job with a statement of its own.
func (l *link) insertOne(ctx context.Context, n int) error {
	if l.pg == nil {
		return l.insert(ctx, n)
	}
	id := rawID.Add(1)
	_, err := l.pg.Exec(ctx, `INSERT INTO raw_job (queue_id, divided, priority, id, kind, payload) VALUES (1, $1, 2, $2, 'noop', $3)`,
		id%rawBlocks, id, payload(n))
	return err
}

// fillRaw writes n jobs to a table of the floors.
func fillRaw(t *testing.T, b *bed, table string, n int) {
	t.Helper()
	l := connect(t, b)
	numbers := make([]int, 1000)
	for first := 0; first < n; first += len(numbers) {
		for i := range numbers {
			numbers[i] = first + i
		}
		if err := l.insert(t.Context(), numbers[:min(len(numbers), n-first)]...); err != nil {
			t.Fatal(err)
		}
	}
	if table != "raw_job" {
		b.Do(t, `INSERT INTO `+table+` (queue_id, id, kind, payload) SELECT queue_id, id, kind, payload FROM raw_job`, nil)
		b.truncate(t, "raw_job")
	}
	if b.Dialect.Name == "mysql" {
		b.List(t, `ANALYZE TABLE `+table, nil)
		return
	}
	b.Do(t, `ANALYZE `+table, nil)
}

// sunk keeps the compiler from optimizing the floors' handler away.
var sunk atomic.Int64

func rawHandler(_ int64, kind string, body []byte) { sunk.Add(int64(len(kind) + len(body))) }

// turn deletes the last batch of a block and reads the next one, in one round trip where the driver
// can.
func (l *link) turn(ctx context.Context, divided int, last []int64, cursor int64, n int) (ids []int64, err error) {
	if l.pg == nil {
		if len(last) > 0 {
			done, err := l.db.ExecContext(ctx, `DELETE FROM raw_job WHERE queue_id = 1 AND divided = ? AND priority = 2 AND id IN (`+listed(last)+
				`) AND id BETWEEN ? AND ?`, divided, last[0], cursor)
			if err != nil {
				return nil, err
			}
			if deleted, err := done.RowsAffected(); err != nil || deleted != int64(len(last)) {
				return nil, fmt.Errorf("deleted %d rows of %d: %w", deleted, len(last), err)
			}
		}
		rows, err := l.db.QueryContext(ctx, `SELECT id, kind, payload FROM raw_job
			WHERE queue_id = 1 AND divided = ? AND priority = 2 AND id > ? ORDER BY id LIMIT ?`, divided, cursor, n)
		if err != nil {
			return nil, err
		}
		return handleRows(rows)
	}
	var batch pgx.Batch
	if len(last) > 0 {
		batch.Queue(`DELETE FROM raw_job WHERE queue_id = $1 AND divided = $2 AND priority = $3 AND id = ANY ($4) AND id BETWEEN $5 AND $6`,
			1, divided, 2, last, last[0], cursor)
	}
	batch.Queue(`SELECT id, kind, payload FROM raw_job WHERE queue_id = $1 AND divided = $2 AND priority = $3 AND id > $4 ORDER BY id LIMIT $5`,
		1, divided, 2, cursor, n)
	results := l.pg.SendBatch(ctx, &batch)
	defer results.Close()
	if len(last) > 0 {
		if tag, err := results.Exec(); err != nil || tag.RowsAffected() != int64(len(last)) {
			return nil, fmt.Errorf("deleted %d rows of %d: %w", tag.RowsAffected(), len(last), err)
		}
	}
	rows, err := results.Query()
	if err == nil {
		ids, err = handlePgx(rows)
	}
	if err != nil {
		return nil, err
	}
	return ids, results.Close()
}

func listed(ids []int64) string {
	var text []byte
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, id, 10)
	}
	return string(text)
}

func handleRows(rows *sql.Rows) (ids []int64, err error) {
	defer rows.Close()
	for rows.Next() {
		var id int64
		var kind string
		var body sql.RawBytes
		if err := rows.Scan(&id, &kind, &body); err != nil {
			return nil, err
		}
		rawHandler(id, kind, body)
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func handlePgx(rows pgx.Rows) (ids []int64, err error) {
	defer rows.Close()
	for rows.Next() {
		var id int64
		var kind string
		var body []byte
		if err := rows.Scan(&id, &kind, &body); err != nil {
			return nil, err
		}
		rawHandler(id, kind, body)
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// leaseFloor drains n jobs as package queue does: the holder of a block reads it with a cursor, and
// deletes finished jobs with the next read.
func leaseFloor(t *testing.T, b *bed, n, size int) float64 {
	t.Helper()
	fillRaw(t, b, "raw_job", n)
	return rawDrain(t, b, "raw_job", n, func(ctx context.Context, l *link, i int) (total int64, err error) {
		last, cursor := [rawBlocks][]int64{}, [rawBlocks]int64{}
		for busy := true; busy; {
			busy = false
			for block := i; block < rawBlocks; block += rawConns {
				if cursor[block] > 0 && len(last[block]) == 0 {
					continue
				}
				var ids []int64
				if err = again(ctx, l.d, func() (err error) {
					ids, err = l.turn(ctx, block, last[block], cursor[block], size)
					return err
				}); err != nil {
					return total, err
				}
				busy = true
				total += int64(len(ids))
				last[block] = ids
				cursor[block] = max(cursor[block], 1)
				if len(ids) > 0 {
					cursor[block] = ids[len(ids)-1]
				}
			}
		}
		return total, nil
	})
}

// skipFloor drains n jobs as most queues do: each worker takes the first ones that no other has
// locked.
func skipFloor(t *testing.T, b *bed, n, size int) float64 {
	t.Helper()
	return takeFloor(t, b, n, func(ctx context.Context, l *link) ([]int64, error) { return l.skip(ctx, size) })
}

// advisoryFloor is skipFloor with advisory locks on the jobs' ids instead of row locks.
func advisoryFloor(t *testing.T, b *bed, n, size int) float64 {
	t.Helper()
	return takeFloor(t, b, n, func(ctx context.Context, l *link) ([]int64, error) { return l.advise(ctx, size) })
}

func takeFloor(t *testing.T, b *bed, n int, take func(ctx context.Context, l *link) ([]int64, error)) float64 {
	t.Helper()
	fillRaw(t, b, "raw_skip", n)
	return rawDrain(t, b, "raw_skip", n, func(ctx context.Context, l *link, _ int) (total int64, err error) {
		for {
			var ids []int64
			err := again(ctx, l.d, func() (err error) { ids, err = take(ctx, l); return err })
			if err != nil || len(ids) == 0 {
				return total, err
			}
			total += int64(len(ids))
		}
	})
}

// advise takes n of the next jobs whose advisory locks are free, and deletes them.
func (l *link) advise(ctx context.Context, n int) ([]int64, error) {
	for {
		rows, err := l.pg.Query(ctx, `DELETE FROM raw_skip WHERE queue_id = 1 AND id = ANY (ARRAY(
			SELECT id FROM (SELECT id FROM raw_skip WHERE queue_id = 1 ORDER BY id LIMIT $2) AS next
			WHERE pg_try_advisory_xact_lock(id) LIMIT $1)) RETURNING id, kind, payload`, n, 2*rawConns*n)
		if err != nil {
			return nil, err
		}
		ids, err := handlePgx(rows)
		if err != nil || len(ids) > 0 {
			return ids, err
		}
		var more bool // others remain, all of them locked
		if err := l.pg.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM raw_skip)`).Scan(&more); err != nil || !more {
			return nil, err
		}
	}
}

// skip takes the next n jobs that nobody else has locked, and deletes them.
func (l *link) skip(ctx context.Context, n int) ([]int64, error) {
	switch {
	case l.pg != nil: // ARRAY makes every plan pick the jobs once
		rows, err := l.pg.Query(ctx, `DELETE FROM raw_skip WHERE queue_id = 1 AND id = ANY (ARRAY(
			SELECT id FROM raw_skip WHERE queue_id = 1 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id, kind, payload`, n)
		if err != nil {
			return nil, err
		}
		return handlePgx(rows)
	case l.d.SkipLocked == "":
		rows, err := l.db.QueryContext(ctx, `DELETE FROM raw_skip WHERE queue_id = 1 AND id IN (
			SELECT id FROM raw_skip WHERE queue_id = 1 ORDER BY id LIMIT ?) RETURNING id, kind, payload`, n)
		if err != nil {
			return nil, err
		}
		return handleRows(rows)
	}
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	rows, err := tx.QueryContext(ctx, `SELECT id, kind, payload FROM raw_skip WHERE queue_id = 1 ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED`, n)
	if err != nil {
		return nil, err
	}
	ids, err := handleRows(rows)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM raw_skip WHERE queue_id = 1 AND id IN (`+listed(ids)+`)`); err != nil {
		return nil, err
	}
	return ids, tx.Commit()
}

// rawDrain lets each connection take its part and checks the sum.
func rawDrain(t *testing.T, b *bed, table string, n int, part func(ctx context.Context, l *link, i int) (int64, error)) float64 {
	t.Helper()
	links := make([]*link, rawConns)
	for i := range links {
		links[i] = connect(t, b)
	}
	var total atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for i, l := range links {
		group.Go(func() {
			done, err := part(t.Context(), l, i)
			if total.Add(done); err != nil {
				t.Errorf("%s: %v", table, err)
			}
		})
	}
	group.Wait()
	took := time.Since(begun)
	if left := rawRows(t, b, table); left != 0 || total.Load() != int64(n) {
		t.Errorf("%s: %d jobs done and %d left, of %d", table, total.Load(), left, n)
	}
	b.truncate(t, table)
	return perSecond(int64(n), took)
}
