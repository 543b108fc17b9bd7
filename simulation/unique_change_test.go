package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
)

// Documents that programs change, and jobs that index them, which have their keys until they begin. A change and its job are
// one transaction. The index is at the last version in the end, and no document has more than two jobs: one that has begun,
// and one that has not.

const indexKind = "index"

// docJobs are the jobs of documents.
const docJobs = `(SELECT 'ready' AS place, id, unique_key FROM dbcron_job WHERE unique_until = 'begin' UNION ALL SELECT 'delayed', id, unique_key FROM dbcron_job_delayed WHERE unique_until = 'begin'
	UNION ALL SELECT 'running', id, unique_key FROM dbcron_job_running WHERE unique_until = 'begin')`

// beginDocs makes the documents.
func (u *uniqueWork) beginDocs(w *World) error {
	u.docs = w.Knob("docs", 1, 2, 5)
	texts := []string{
		`CREATE TABLE sim_doc (doc TEXT PRIMARY KEY, version INTEGER NOT NULL, indexed INTEGER NOT NULL)`,
		`CREATE TABLE sim_crowd (unique_key TEXT NOT NULL, other INTEGER NOT NULL)`,
	}
	for i := range u.docs {
		texts = append(texts, fmt.Sprintf(`INSERT INTO sim_doc VALUES ('doc%d', 0, 0)`, i))
	}
	for _, table := range []string{"dbcron_job", "dbcron_job_delayed", "dbcron_job_running"} {
		texts = append(texts, `CREATE TRIGGER sim_crowd_of_`+table+` AFTER INSERT ON `+table+` WHEN NEW.kind = '`+indexKind+`' BEGIN
			INSERT INTO sim_crowd (unique_key, other) SELECT NEW.unique_key, NEW.id
			WHERE (SELECT COUNT(DISTINCT o.id) FROM `+docJobs+` AS o WHERE o.unique_key = NEW.unique_key) > 2; END`)
	}
	for _, text := range texts {
		if _, err := w.Operator.Pool().ExecContext(w.Free(), text); err != nil {
			return err
		}
	}
	return nil
}

// indexOf returns the job that indexes a document.
func indexOf(doc string) queue.Job {
	return queue.Job{
		Queue: uniqueQueue, Kind: indexKind, Payload: payload(doc), Unique: doc, UniqueUntil: queue.UntilBegin, Key: doc, MaxAttempts: 10_000,
	}
}

// change changes a document, some times in a row.
func (u *uniqueWork) change(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, d dice) {
	doc := fmt.Sprint("doc", d.IntN(u.docs))
	job := indexOf(doc)
	if d.once(3) {
		job.Delay = d.about(500 * time.Millisecond)
	}
	for range 1 + d.IntN(8) {
		err := u.changeIn(ctx, p, c, db, job, nil)
		p.Note("changed %s: %v", doc, err)
		if p.Sleep(ctx, d.about(20*time.Millisecond)) != nil {
			return
		}
	}
}

// changeIn changes a document in a transaction, which also does what the caller wants.
func (u *uniqueWork) changeIn(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, job queue.Job, also func(tx dialect.Execer) error) error {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, `UPDATE sim_doc SET version = version + 1 WHERE doc = ?`, job.Unique); err != nil {
		return err
	}
	all, wake, err := c.EnqueueTx(ctx, tx, job)
	if err != nil {
		return err
	}
	if also != nil {
		if err := also(tx); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	wake()
	p.Act(func() {
		p.w.Done("changes")
		if all[0].Existed {
			p.w.Reached("a change waits for a job that has yet to begin")
		}
	})
	return nil
}

// index indexes a document. It may change the document itself, in the transaction that completes the job.
func (u *uniqueWork) index(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, d *queue.Delivery) error {
	if err := p.awake(context.Background(), nil); err != nil { // it stands still, or is dead
		return err
	}
	doc := nameOf(d)
	p.Note("indexes %s: %d, attempt %d, %d crashes", doc, d.ID, d.Attempt, d.Crashes)
	p.Act(func() { u.running++; u.stirs() })
	defer func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		u.running--
		u.stirs()
	}()
	var saw, is int
	if err := db.Pool().QueryRowContext(ctx, `SELECT version FROM sim_doc WHERE doc = ?`, doc).Scan(&saw); err != nil {
		return err
	}
	dice := p.w.Dice("index", d.ID, d.Attempt, d.Crashes)
	took := dice.about(80 * time.Millisecond)
	if dice.once(10) {
		took = dice.between(time.Second, 8*time.Second)
	}
	if err := p.Sleep(ctx, took); err != nil {
		return err
	}
	if dice.once(8) {
		return errors.New("the index cannot be reached")
	}
	const indexed = `UPDATE sim_doc SET indexed = MAX(indexed, ?) WHERE doc = ? RETURNING version`
	if dice.once(4) {
		err := u.changeIn(ctx, p, c, db, indexOf(doc), func(tx dialect.Execer) error {
			if _, err := tx.ExecContext(ctx, strings.TrimSuffix(indexed, " RETURNING version"), saw, doc); err != nil {
				return err
			}
			return d.CompleteTx(ctx, tx)
		})
		if err == nil {
			p.Act(func() { p.w.Reached("a job changes its own document") })
		}
		return err
	}
	if err := db.Pool().QueryRowContext(ctx, indexed, saw, doc).Scan(&is); err != nil {
		return err
	}
	p.Act(func() {
		p.w.Done("indexed")
		if is > saw {
			p.w.Reached("a document changes while it is indexed")
		} else if saw > 1 {
			p.w.Reached("a document is indexed again after its job")
		}
	})
	return nil
}

// checkDocs looks for changes that no job has seen.
func (u *uniqueWork) checkDocs(w *World) error {
	return eachRow(w, `SELECT doc, version, indexed FROM sim_doc WHERE indexed <> version`, func(scan func(...any) error) error {
		var doc string
		var version, indexed int
		err := scan(&doc, &version, &indexed)
		w.Violate("change", []string{doc}, "%s is at version %d, and its index at %d", doc, version, indexed)
		return err
	})
}
