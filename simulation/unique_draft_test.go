package simulation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
)

// Drafts that people write, and jobs with Debounce that save them, each with its text: a number. A change and its job are one
// transaction. The last text is saved in the end.

const saveKind = "save"

// beginDrafts makes the drafts.
func (u *uniqueWork) beginDrafts(w *World) error {
	u.drafts = w.Knob("drafts", 1, 2, 4)
	texts := []string{
		`CREATE TABLE sim_draft (draft TEXT PRIMARY KEY, text INTEGER NOT NULL, saved INTEGER NOT NULL)`,
		`CREATE TABLE sim_overdue (id INTEGER NOT NULL)`,
	}
	for i := range u.drafts {
		texts = append(texts, fmt.Sprintf(`INSERT INTO sim_draft VALUES ('draft%d', 0, 0)`, i))
	}
	texts = append(texts, `CREATE TRIGGER sim_passed AFTER UPDATE OF job ON dbcron_job_unique WHEN NEW.wait_until IS NOT NULL AND NEW.wait_until <> OLD.wait_until BEGIN
		INSERT INTO sim_overdue (id) VALUES (OLD.job); END`)
	for _, text := range texts {
		if _, err := w.Operator.Pool().ExecContext(w.Free(), text); err != nil {
			return err
		}
	}
	return nil
}

// write changes a draft, some times in a row.
func (u *uniqueWork) write(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, d dice) {
	draft := fmt.Sprint("draft", d.IntN(u.drafts))
	job := queue.Job{Queue: uniqueQueue, Kind: saveKind, Unique: draft, MaxAttempts: 10_000, Delay: d.between(time.Millisecond, 2*time.Second)}
	job.Debounce = job.Delay + d.about(3*time.Second)
	if d.once(2) {
		job.Key = draft
	}
	for range 1 + d.IntN(12) {
		err := u.writeIn(ctx, p, c, db, job)
		p.Note("wrote %s: %v", draft, err)
		if p.Sleep(ctx, d.about(job.Delay)) != nil {
			return
		}
	}
}

func (u *uniqueWork) writeIn(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, job queue.Job) error {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	var text int
	if err := tx.QueryRowContext(ctx, `UPDATE sim_draft SET text = text + 1 WHERE draft = ? RETURNING text`, job.Unique).Scan(&text); err != nil {
		return err
	}
	job.Payload = payload(fmt.Sprint(job.Unique, "=", text))
	all, wake, err := c.EnqueueTx(ctx, tx, job)
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	wake()
	p.Act(func() {
		p.w.Done("drafts")
		if all[0].Existed {
			p.w.Violate("draft", []string{job.Unique}, "text %d of %s was not enqueued, since %d has its key", text, job.Unique, all[0].ID)
		}
	})
	return nil
}

// save saves a draft.
func (u *uniqueWork) save(ctx context.Context, p *Process, db *dialect.DB, d *queue.Delivery) error {
	if err := p.awake(context.Background(), nil); err != nil { // it stands still, or is dead
		return err
	}
	draft, number, _ := strings.Cut(nameOf(d), "=")
	text, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	p.Note("saves %s: text %d, job %d, attempt %d", draft, text, d.ID, d.Attempt)
	p.Act(func() { u.running++; u.stirs() })
	defer func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		u.running--
		u.stirs()
	}()
	dice := p.w.Dice("save", d.ID, d.Attempt, d.Crashes)
	if err := p.Sleep(ctx, dice.about(50*time.Millisecond)); err != nil {
		return err
	}
	if dice.once(8) {
		return errors.New("the disk is full")
	}
	var saved, overdue int
	if err := db.Pool().QueryRowContext(ctx, `SELECT saved, (SELECT COUNT(*) FROM sim_overdue WHERE id = ?) FROM sim_draft WHERE draft = ?`, d.ID, draft).Scan(&saved, &overdue); err != nil {
		return err
	}
	if _, err := db.Pool().ExecContext(ctx, `UPDATE sim_draft SET saved = MAX(saved, ?) WHERE draft = ?`, text, draft); err != nil {
		return err
	}
	p.Act(func() {
		p.w.Done("saved")
		if text > saved+1 {
			p.w.Reached("a newer draft replaces one that waits")
		}
		if overdue > 0 {
			p.w.Reached("a draft stays that has waited long enough")
		}
	})
	return nil
}

// checkDrafts looks for texts that were not saved.
func (u *uniqueWork) checkDrafts(w *World) error {
	return eachRow(w, `SELECT draft, text, saved FROM sim_draft WHERE saved <> text`, func(scan func(...any) error) error {
		var draft string
		var text, saved int
		err := scan(&draft, &text, &saved)
		w.Violate("draft", []string{draft}, "the last text of %s is %d, and %d was saved", draft, text, saved)
		return err
	})
}
