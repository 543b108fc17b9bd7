package sqlrun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What dbcron decides by: the number of rows that a statement changed, the new value of a counter, unique keys, locking
// reads that pass over rows, and that a transaction which is rolled back leaves nothing. All of it is tried when a
// database is opened, on rows that nobody else has, in a transaction that is rolled back.
var (
	// The last row has the key of the one before.
	proofInsert = SQL("dialect.proof-insert", `
		INSERT INTO {prefix}lock_fence (name, slot, fence) VALUES (:name, -1, 1), (:name, -2, 2), (:name, -3, 2), (:name, -3, 2) {ignore_duplicate name}`)

	// Of the two rows that it meets it changes one.
	proofUpdate = SQL("dialect.proof-update", `UPDATE {prefix}lock_fence SET fence = 2 WHERE name = :name AND slot >= -2`)

	proofNext = SQL("dialect.proof-next", `
		UPDATE {prefix}lock_fence SET {next fence} WHERE name = :name AND slot = -1 {returning fence}`)

	// Whether it locks takes a second connection to see, which a command that needs one would open for this alone.
	proofLock = SQL("dialect.proof-lock", `
		SELECT COUNT(*) FROM (SELECT slot FROM {prefix}lock_fence WHERE name = :name {skip_locked}) AS locked`)

	proofCount  = SQL("dialect.proof-count", `SELECT COUNT(*) FROM {prefix}lock_fence WHERE name = :name`)
	proofRemove = SQL("dialect.proof-remove", `DELETE FROM {prefix}lock_fence WHERE name = :name`)
)

// proofTime is how long the proof may take. It waits for nobody's rows, but perhaps for somebody who has locked the table.
const proofTime = 2 * time.Second

// A disproof is something that statements rely on and that was seen to be otherwise.
type disproof string

func (d disproof) Error() string { return string(d) }

var errProved = errors.New("proved")

// proof tries what statements rely on. Where that cannot be tried, for want of tables, rights or time, it refuses
// nothing: it is about servers and drivers that lie, not about busy ones.
func (db *DB) proof(ctx context.Context) (Finding, error) {
	f := Finding{Subject: "transactions", Advice: "use a server, a storage engine (InnoDB) and a driver that do what they say; " +
		"if these do, report this as a bug"}
	bounded, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	args := Args{"name": "dbcron: proof " + rand.Text()}
	err := db.FreeTx(bounded, proofTime, func(ctx context.Context, tx *Session) error { return db.prove(ctx, tx, args) })
	var wrong disproof
	if proved := errors.Is(err, errProved); proved || errors.As(err, &wrong) {
		if proved {
			err = nil
		}
		err = errors.Join(err, db.leftNothing(bounded, args))
	}
	switch {
	case err == nil:
		f.OK, f.Detail = true, "counts of rows, unique keys, locking reads and ROLLBACK are as they should be"
	case errors.As(err, &wrong):
		f.Detail = strings.ReplaceAll(err.Error(), "\n", "; ")
	case db.Dialect.Refused(err) && !db.Dialect.Missing(err) && !db.Dialect.Denied(err):
		f.Detail = err.Error()
	case ctx.Err() != nil:
		return f, err
	default:
		f.OK, f.Detail = true, "not tried: "+err.Error()
		if db.Dialect.Missing(err) {
			f.Detail = "not tried, since there are no tables yet"
		}
	}
	return f, nil
}

// prove ends in an error always, so that its transaction is rolled back.
func (db *DB) prove(ctx context.Context, tx *Session, args Args) error {
	n, err := tx.Exec(ctx, proofInsert, args)
	if err == nil && n != 3 && n != 4 { // MySQL may count the row that it has met
		err = disproof(fmt.Sprintf("an INSERT of 3 rows, one of them twice, says that it inserted %d", n))
	}
	if err != nil {
		return err
	}
	// Wrapped pools may count the rows that an UPDATE changed instead of those that it met. Statements rely on
	// neither: they change what they meet.
	if n, err = tx.Exec(ctx, proofUpdate, args); err == nil && n != 2 && (n != 1 || db.owned) {
		err = disproof(fmt.Sprintf("an UPDATE that meets 2 rows of 3 and changes 1 says %d", n))
	}
	if err != nil {
		return err
	}
	value, found, err := tx.Next(ctx, proofNext, args)
	if err == nil && (!found || value != 3) {
		err = disproof(fmt.Sprintf("a counter that went from 2 to 3 comes back as %d (row found: %t)", value, found))
	}
	if err != nil {
		return err
	}
	var rows int
	if err := tx.Get(ctx, proofLock, args, &rows); err != nil {
		return err
	}
	switch {
	case rows < 3:
		return disproof(fmt.Sprintf("a locking read finds %d of 3 rows of its own transaction", rows))
	case rows > 3:
		return disproof("a primary key accepts a row twice")
	}
	return errProved
}

// leftNothing looks for what was rolled back.
func (db *DB) leftNothing(ctx context.Context, args Args) error {
	var n int
	if err := db.Get(ctx, proofCount, args, &n); err != nil || n == 0 {
		return err
	}
	wrong := disproof(fmt.Sprintf("%d rows of a transaction that was rolled back are still there", n))
	if _, err := db.Exec(ctx, proofRemove, args); err != nil {
		return fmt.Errorf("%w; and they cannot be removed: %w", wrong, err)
	}
	return wrong
}
