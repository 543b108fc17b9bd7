package lock

import "github.com/dbcron/dbcron/internal/sqlrun"

// All SQL of this package.
//
// What makes it safe at once: each taking, renewing and giving up is one UPDATE
// of one row, found by its primary key, whose WHERE names the state that it
// needs. The engine lets one such UPDATE of a row through after the other, and
// each sees what the one before it has committed. Who has won is told by the
// number of rows, by RETURNING, or by a value that the UPDATE itself leaves in
// the connection; never by looking afterwards. lock_by is fresh to each
// acquisition, so no two holders share it.
//
// {now} is when the statement came to the server. One that had to wait for
// another gives a lease that is shorter by the wait, never longer.
var (
	// take grants a lock that is free or has expired. The assignments are in an
	// order that engines need which evaluate them one after the other.
	take = sqlrun.PerDialect("lock.take", func(d *sqlrun.Dialect) string {
		return `
		UPDATE {prefix}lock SET` + grant + queueWithout(d) + `
		WHERE name = :name AND slot = 0
			AND (state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at <= {now})
		{returning fence}`
	})

	// usurp takes a lock whose holder also had a session lock, from whoever has
	// that session lock now. It names the holder that was seen, so that of two
	// who saw the same one only one succeeds.
	usurp = sqlrun.PerDialect("lock.usurp", func(d *sqlrun.Dialect) string {
		return `
		UPDATE {prefix}lock SET` + grant + queueWithout(d) + `
		WHERE name = :name AND slot = 0 AND state IN ('LOCK', 'EXTEND') AND session <> ''
			AND lock_by = :seen AND fence = :seen_fence
		{returning fence}`
	})

	// takeSlot grants a slot of a pool, passing over slots that others are just
	// taking, so that as many can be taken at once as are free.
	takeSlot = sqlrun.PerDialect("lock.take-slot", func(d *sqlrun.Dialect) string {
		s := d.UpdateFrom("{prefix}lock", []string{"name", "slot"}, grant, "", `
			SELECT name, slot FROM {prefix}lock
			WHERE name = :name AND slot > 0 AND (state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at <= {now})
			ORDER BY slot LIMIT 1 {skip_locked}`)
		if d.Returning != nil {
			s += "\nRETURNING {prefix}lock.slot, {prefix}lock.fence"
		}
		return s
	})

	// slotOf reports which slot takeSlot has marked, by the acquisition's own name.
	slotOf = sqlrun.SQL("lock.slot-of", `
		SELECT slot, fence FROM {prefix}lock WHERE name = :name AND slot > 0 AND lock_by = :owner`)

	// extend renews a lease that has not ended. It never makes one shorter: a
	// request that was held up may come after a later one. The counter makes it a
	// change, for pools that count changed rows.
	extend = sqlrun.SQL("lock.extend", `
		UPDATE {prefix}lock SET state = 'EXTEND', extends = extends + 1, update_time = {now},
			expire_at = CASE WHEN expire_at > {now + :ttl} THEN expire_at ELSE {now + :ttl} END
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`)

	// release frees a lock that its holder still has. lock_by, lock_at and
	// expire_at stay, for people to see whose it was. Where there are
	// notifications it returns the next who waits, to be told: the
	// queue is read from the row as it is updated, so whoever joins it before is
	// told, and whoever would join it after finds the lock free.
	release = sqlrun.PerDialect("lock.release", func(d *sqlrun.Dialect) string {
		s := `
		UPDATE {prefix}lock SET state = 'FREE', released_at = {now}, update_time = {now}
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`
		return returningNext(d, s)
	})

	// keep is release before a lock's minimum hold is over: it stays as it is
	// until then, but nobody's.
	keep = sqlrun.SQL("lock.keep", `
		UPDATE {prefix}lock SET released_at = {now}, update_time = {now}, expire_at = {time {us lock_at} + :min}
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`)

	// abandon frees what an acquisition may have got whose answer was lost.
	abandon = sqlrun.SQL("lock.abandon", `
		UPDATE {prefix}lock SET state = 'FREE', released_at = {now}, update_time = {now}
		WHERE name = :name AND lock_by = :owner AND state IN ('LOCK', 'EXTEND')`)

	// forced reports which lease was the last that was ended by force; 0 if none.
	forced = sqlrun.SQL("lock.forced", `
		SELECT COALESCE(forced_fence, 0) FROM {prefix}lock WHERE name = :name AND slot = :slot`)

	// describe changes what a holder says about itself.
	describe = sqlrun.SQL("lock.describe", `
		UPDATE {prefix}lock SET meta = :meta, update_time = {now}, extends = extends + 1
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`)

	// guard keeps the holders before this one out of guarded transactions, and
	// makes those that come at once wait for each other's end. It changes a row
	// apart from the lock's, so that a long transaction does not keep its own
	// lease from being renewed.
	guard = sqlrun.SQL("lock.guard", `
		UPDATE {prefix}lock_fence SET fence = :fence, guards = guards + 1
		WHERE name = :name AND slot = :slot AND fence <= :fence`)

	// current reports whether the lease is what the lock's row says. Nothing is
	// locked by it: what it cannot see, guard refuses.
	current = sqlrun.SQL("lock.current", `
		SELECT COUNT(*) FROM {prefix}lock
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`)

	// peek reads whose a lock is, and all the slots of a pool.
	peek = sqlrun.SQL("lock.peek", columns+` WHERE name = :name ORDER BY slot`)

	// list pages through all locks by their key.
	list = sqlrun.SQL("lock.list", columns+`
		WHERE name >= :after AND (name > :after OR slot > :slot) ORDER BY name, slot LIMIT :limit`)

	// floor reads the highest fence of all rows that were purged, and keeps a
	// purge from raising it before this transaction ends.
	floor = sqlrun.SQL("lock.floor", `
		SELECT fence FROM {prefix}lock_fence WHERE name = '' AND slot = 0 {share_locked}`)

	// create makes the rows of locks and slots that have none.
	create = sqlrun.SQL("lock.create", `
		INSERT INTO {prefix}lock (name, slot, state, fence, insert_time, update_time)
		VALUES {values rows: (:name, :slot, :state, :fence, {now}, {now})}
		{ignore_duplicate slot}`)
	createFence = sqlrun.SQL("lock.create-fence", `
		INSERT INTO {prefix}lock_fence (name, slot, fence) VALUES {values rows: (:name, :slot, :fence)}
		{ignore_duplicate slot}`)

	// pool locks the head of a pool. Whoever changes a pool's size does this
	// first, and so one does it after the other.
	pool = sqlrun.SQL("lock.pool", `
		UPDATE {prefix}lock SET update_time = {now}, extends = extends + 1
		WHERE name = :name AND slot = 0 AND state = 'POOL'`)

	// open and close change which slots a pool has. Only a slot that is nobody's
	// can be closed, so that never more are held than there are.
	open = sqlrun.SQL("lock.open", `
		UPDATE {prefix}lock SET state = 'FREE', update_time = {now}
		WHERE name = :name AND slot IN (:slots) AND state = 'CLOSED'`)
	closeSlots = sqlrun.SQL("lock.close", `
		UPDATE {prefix}lock SET state = 'CLOSED', update_time = {now}
		WHERE name = :name AND slot IN (:slots)
			AND (state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at <= {now})`)

	// force frees a lock whoever has it, and writes down who did that and why.
	force = sqlrun.PerDialect("lock.force", func(d *sqlrun.Dialect) string {
		return returningNext(d, `
		UPDATE {prefix}lock SET state = 'FREE', released_at = {now}, update_time = {now},
			forced_by = :by, forced_fence = fence, forced_at = {now}, forced_why = :why
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND')`)
	})

	// raise locks the floor, so that no row is made while rows are purged.
	raise = sqlrun.SQL("lock.raise", `
		UPDATE {prefix}lock_fence SET guards = guards + 1, fence = CASE WHEN fence < :fence THEN :fence ELSE fence END
		WHERE name = '' AND slot = 0`)

	// idle locks rows that nobody has used for long. Pools stay.
	idle = sqlrun.SQL("lock.idle", `
		SELECT name, fence FROM {prefix}lock
		WHERE name > :after AND slot = 0 AND (state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at < {now + :ago})
			AND update_time < {now + :ago}
		ORDER BY name LIMIT :limit {skip_locked}`)

	// purge and purgeFence remove rows that idle has locked.
	purge      = sqlrun.SQL("lock.purge", `DELETE FROM {prefix}lock WHERE name IN (:names) AND slot = 0 AND (state = 'FREE' OR expire_at <= {now})`)
	purgeFence = sqlrun.SQL("lock.purge-fence", `DELETE FROM {prefix}lock_fence WHERE name IN (:names) AND slot = 0`)

	// enqueue puts this process into the row's queue while the lock is held, or
	// has just been left to the first of the queue, and says until when it will
	// wait for a notification. Queues of processes that have gone are dropped.
	// Its commit does not wait for the disk: a crash that loses it loses what
	// only they knew who wait.
	enqueue = sqlrun.PerDialect("lock.enqueue", whereNotified(`
		UPDATE {prefix}lock SET waiting_until = {now + :patience},
			waiters = CASE WHEN waiting_until IS NULL OR waiting_until <= {now} THEN ARRAY[CAST(:me AS VARCHAR)]
				WHEN :me = ANY (waiters) THEN waiters ELSE array_append(waiters, CAST(:me AS VARCHAR)) END
		WHERE name = :name AND slot = 0 AND cardinality(waiters) < 200
			AND (state IN ('LOCK', 'EXTEND') AND expire_at > {now}
				OR state = 'FREE' AND waiters[1] <> :me AND waiting_until > {now} AND {now + -50000} < released_at)
		RETURNING set_config('synchronous_commit', 'off', true)`))

	// dequeue takes this process out of the queue. If the lock came free
	// meanwhile, and this process was to be told, the next one is.
	dequeue = sqlrun.PerDialect("lock.dequeue", func(d *sqlrun.Dialect) string {
		return whereNotified(returningNext(d, `
		UPDATE {prefix}lock SET waiters = array_remove(waiters, CAST(:me AS VARCHAR))
		WHERE name = :name AND slot = 0 AND :me = ANY (waiters)`))(d)
	})

	// tell notifies a process: of a lock that has come free, or itself, to find out whether
	// it hears. It is a transaction of its own: a notification that the server refuses must undo
	// nothing. It does not wait for the disk.
	tell = sqlrun.PerDialect("lock.tell", func(d *sqlrun.Dialect) string {
		if d.Notify == nil {
			return "SELECT 1"
		}
		return "SELECT set_config('synchronous_commit', 'off', true) || CAST(" +
			d.Notify("CAST(:channel AS TEXT)", "CAST(:payload AS TEXT)") + " AS TEXT)"
	})
)

const grant = `
			takeovers = takeovers + CASE WHEN state <> 'FREE' AND released_at IS NULL THEN 1 ELSE 0 END,
			lock_by = :owner, state = 'LOCK', lock_at = {now}, released_at = NULL, extends = 0,
			meta = :meta, session = :session, {next fence}, update_time = {now}, expire_at = {now + :ttl}`

const columns = `
		SELECT name, slot, state, lock_by, COALESCE({us lock_at}, 0), COALESCE({us expire_at}, 0),
			COALESCE({us released_at}, 0), fence, extends, takeovers, meta, session,
			forced_by, COALESCE({us forced_at}, 0), forced_why, {us update_time}, {us {now}}
		FROM {prefix}lock`

// channel is where the processes that wait listen, each to its own.
const channel = "dbcron_lock_"

// queueWithout takes out of the row's queue those who have waited up to this
// process or, if it is not in it, the first, who was told and did not come.
// Whoever is taken out and still waits will join again.
func queueWithout(d *sqlrun.Dialect) string {
	if d.Notify == nil {
		return ""
	}
	return `,
			waiters = CASE WHEN waiting_until > {now}
				THEN waiters[COALESCE(array_position(waiters, CAST(:me AS VARCHAR)), 1) + 1:] ELSE CAST(ARRAY[] AS VARCHAR[]) END`
}

// returningNext adds to an UPDATE of one row that it returns the first of its queue if the
// lock is free, for Locker.notifying to tell, or nothing.
func returningNext(d *sqlrun.Dialect, update string) string {
	if d.Notify == nil {
		return update
	}
	return update + `
		RETURNING CASE WHEN state = 'FREE' AND waiting_until > {now} AND cardinality(waiters) > 0 THEN waiters[1] ELSE '' END`
}

// whereNotified is a statement that is needed only where there are
// notifications.
func whereNotified(text string) func(*sqlrun.Dialect) string {
	return func(d *sqlrun.Dialect) string {
		if d.Notify == nil {
			return "SELECT 1"
		}
		return text
	}
}
