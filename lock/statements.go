package lock

import (
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// This file holds all SQL of the package.
//
// Why it is safe with any number of processes at once: each acquisition, renewal and release is
// one UPDATE of one row, found by its primary key, whose WHERE names the state that it
// requires. The engine executes such UPDATEs of a row one after the other, and each sees what
// the previous one has committed. The winner is known from the number of rows, from RETURNING,
// or from a value that the UPDATE itself leaves in the connection; never from a later read.
// lock_by is new for each acquisition, so no two holders share it.
//
// {now} is the time at which the server received the statement. If it had to wait for another,
// the lease is shorter by the wait, never longer.
var (
	// take grants a lock that is free or has expired; to a process that waits in the row's queue, or could,
	// only if nobody there is before it. The order of the assignments matters to
	// engines that evaluate them one after the other.
	take = sqlrun.PerDialect("lock.take", func(d *sqlrun.Dialect) string {
		return `
		UPDATE {prefix}lock SET` + grant + queueWithout(d) + `
		WHERE name = :name AND slot = 0
			AND ` + isFree + inTurn(d) + `
		{returning fence}`
	})

	// takeMany is take for many locks at once, each for an owner of its own. It passes over rows that others have
	// locked. Only engines that return what an UPDATE has written need it, and releaseMany.
	takeMany = sqlrun.PerDialect("lock.take-many", func(d *sqlrun.Dialect) string {
		if d.Returning == nil {
			return "SELECT 1"
		}
		return d.UpdateFrom("{prefix}lock", byName, strings.Replace(grant, ":owner", "picked.owner", 1)+queueWithout(d), "", `
			SELECT l.name, l.slot, record.owner FROM {records rows: name text, owner text}
			{join_by_key {prefix}lock AS l} ON l.name = record.name AND l.slot = 0
			WHERE `+isFree+inTurn(d)+` {skip_locked}`) + "\nRETURNING {prefix}lock.lock_by, {prefix}lock.fence"
	})

	// usurp takes a lock whose holder also had a session lock, for the process that has that
	// session lock now. It names the holder that was seen, so that of two processes that saw
	// the same one only one succeeds.
	usurp = sqlrun.PerDialect("lock.usurp", func(d *sqlrun.Dialect) string {
		return `
		UPDATE {prefix}lock SET` + grant + queueWithout(d) + `
		WHERE name = :name AND slot = 0 AND state IN ('LOCK', 'EXTEND') AND session <> ''
			AND lock_by = :seen AND fence = :seen_fence
		{returning fence}`
	})

	// takeSlot grants a slot of a pool. It skips slots that others are taking right now, so
	// that all free slots can be taken at once.
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

	// settle ends leases of a lock or a pool in time that outlast their length, because the database's clock went back: see settled.
	settle = sqlrun.UpdateFree("lock.settle", "{prefix}lock", byName, `expire_at = `+settled+`, update_time = {now}`,
		`name = :name AND state IN ('LOCK', 'EXTEND') AND update_time > {now + 60000000}`)

	// slotOf returns the slot that takeSlot has marked with the acquisition's own name.
	slotOf = sqlrun.SQL("lock.slot-of", `
		SELECT slot, fence FROM {prefix}lock WHERE name = :name AND slot > 0 AND lock_by = :owner`)

	// extend renews a lease that has not ended. It never shortens one, but for what it has from a clock that went back: a delayed
	// request may arrive after a later one. The counter makes every renewal a change, for pools that count
	// changed rows.
	extend = sqlrun.SQL("lock.extend", `
		UPDATE {prefix}lock SET expire_at = CASE WHEN `+settled+` > {now + :ttl} THEN `+settled+` ELSE {now + :ttl} END,
			state = 'EXTEND', extends = extends + 1, update_time = {now}
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`)

	// release frees a lock that its holder still has. lock_by, lock_at and expire_at stay, to
	// show people who held it. On engines with notifications it returns the next waiter, to be
	// notified. It reads the queue from the row that it updates: a process that joins before is
	// notified, and one that would join after finds the lock free.
	release = sqlrun.PerDialect("lock.release", func(d *sqlrun.Dialect) string {
		s := `
		UPDATE {prefix}lock SET state = 'FREE', released_at = {now}, update_time = {now}
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`
		return returningNext(d, s)
	})

	// releaseMany is release for many locks at once. It passes over rows that others have locked.
	releaseMany = sqlrun.PerDialect("lock.release-many", func(d *sqlrun.Dialect) string {
		if d.Returning == nil {
			return "SELECT 1"
		}
		next := "''"
		if d.Notify != nil {
			next = nextInQueue
		}
		return d.UpdateFrom("{prefix}lock", byName, `state = 'FREE', released_at = {now}, update_time = {now}`, "", `
			SELECT l.name, l.slot FROM {records rows: name text, slot int, owner text, fence int}
			{join_by_key {prefix}lock AS l} ON l.name = record.name AND l.slot = record.slot
			WHERE l.lock_by = record.owner AND l.fence = record.fence
				AND l.state IN ('LOCK', 'EXTEND') AND l.released_at IS NULL AND l.expire_at > {now} {skip_locked}`) + "\nRETURNING {prefix}lock.lock_by, " + next
	})

	// keep is release before a lock's minimum hold is over: the lock stays taken until then,
	// but has no holder.
	keep = sqlrun.SQL("lock.keep", `
		UPDATE {prefix}lock SET released_at = {now}, update_time = {now},
			expire_at = CASE WHEN lock_at > {now} THEN {now + :min} ELSE {time {us lock_at} + :min} END
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`)

	// abandon frees what an acquisition with a lost answer may have got.
	abandon = sqlrun.SQL("lock.abandon", `
		UPDATE {prefix}lock SET state = 'FREE', released_at = {now}, update_time = {now}
		WHERE name = :name AND lock_by = :owner AND state IN ('LOCK', 'EXTEND')`)

	// forced returns the fence of the last lease that was ended by force; 0 if there was none.
	forced = sqlrun.SQL("lock.forced", `
		SELECT COALESCE(forced_fence, 0) FROM {prefix}lock WHERE name = :name AND slot = :slot`)

	// describe changes the holder's description of itself.
	describe = sqlrun.SQL("lock.describe", `
		UPDATE {prefix}lock SET meta = :meta, expire_at = `+settled+`, update_time = {now}, extends = extends + 1
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`)

	// guard refuses guarded transactions of earlier holders, and makes concurrent ones wait for
	// each other's end. It changes a row apart from the lock's, so that a long transaction does
	// not prevent the renewal of its own lease.
	guard = sqlrun.SQL("lock.guard", `
		UPDATE {prefix}lock_fence SET fence = :fence, guards = guards + 1
		WHERE name = :name AND slot = :slot AND fence <= :fence`)

	// current reports whether the lease is the one in the lock's row. It locks nothing: guard
	// refuses what it cannot see.
	current = sqlrun.SQL("lock.current", `
		SELECT COUNT(*) FROM {prefix}lock
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > {now}`)

	// peek reads the state of a lock, or of all slots of a pool.
	peek = sqlrun.SQL("lock.peek", columns+` WHERE name = :name ORDER BY slot`)

	// list pages through all locks by their key.
	list = sqlrun.SQL("lock.list", columns+`
		WHERE name >= :after AND (name > :after OR slot > :slot) ORDER BY name, slot LIMIT :limit`)

	// floor reads the highest fence of all purged rows, and keeps a purge from raising it
	// before this transaction ends.
	floor = sqlrun.SQL("lock.floor", `
		SELECT fence FROM {prefix}lock_fence WHERE name = '' AND slot = 0 {share_locked}`)

	// create inserts the rows of locks and slots that have none.
	create = sqlrun.SQL("lock.create", `
		INSERT INTO {prefix}lock (name, slot, state, fence, insert_time, update_time)
		VALUES {values rows: (:name, :slot, :state, :fence, {now}, {now})}
		{ignore_duplicate slot}`)
	createFence = sqlrun.SQL("lock.create-fence", `
		INSERT INTO {prefix}lock_fence (name, slot, fence) VALUES {values rows: (:name, :slot, :fence)}
		{ignore_duplicate slot}`)

	// pool locks the head of a pool. Every change of a pool's size begins with it, so such
	// changes run one after the other.
	pool = sqlrun.SQL("lock.pool", `
		UPDATE {prefix}lock SET update_time = {now}, extends = extends + 1
		WHERE name = :name AND slot = 0 AND state = 'POOL'`)

	// open and close change which slots a pool has. Only a slot without a holder can be closed,
	// so that there are never more holders than slots.
	open = sqlrun.SQL("lock.open", `
		UPDATE {prefix}lock SET state = 'FREE', update_time = {now}
		WHERE name = :name AND slot IN (:slots) AND state = 'CLOSED'`)
	closeSlots = sqlrun.SQL("lock.close", `
		UPDATE {prefix}lock SET state = 'CLOSED', update_time = {now}
		WHERE name = :name AND slot IN (:slots)
			AND (state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at <= {now})`)

	// force frees a lock whoever holds it, and records who did so and why.
	force = sqlrun.PerDialect("lock.force", func(d *sqlrun.Dialect) string {
		return returningNext(d, `
		UPDATE {prefix}lock SET state = 'FREE', released_at = {now}, update_time = {now},
			forced_by = :by, forced_fence = fence, forced_at = {now}, forced_why = :why
		WHERE name = :name AND slot = :slot AND lock_by = :owner AND fence = :fence
			AND state IN ('LOCK', 'EXTEND')`)
	})

	// raise locks the floor, so that no row is created while rows are purged.
	raise = sqlrun.SQL("lock.raise", `
		UPDATE {prefix}lock_fence SET guards = guards + 1, fence = CASE WHEN fence < :fence THEN :fence ELSE fence END
		WHERE name = '' AND slot = 0`)

	// idle locks rows that have been unused for long. It skips pools.
	idle = sqlrun.SQL("lock.idle", `
		SELECT name, fence FROM {prefix}lock
		WHERE name > :after AND slot = 0 AND (state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at < {now + :ago})
			AND update_time < {now + :ago}
		ORDER BY name LIMIT :limit {skip_locked}`)

	// freeFences locks the rows by which transactions of some locks are guarded, but not those of transactions that go
	// on; fences reads all.
	freeFences = sqlrun.SQL("lock.free-fences", fencesOf+` {skip_locked}`)
	fences     = sqlrun.SQL("lock.fences", fencesOf)

	// purge and purgeFence delete rows that idle and freeFences have locked.
	purge      = sqlrun.DeleteFree("lock.purge", "{prefix}lock", byName, `name IN (:names) AND slot = 0 AND (state = 'FREE' OR expire_at <= {now})`)
	purgeFence = sqlrun.DeleteFree("lock.purge-fence", "{prefix}lock_fence", byName, `name IN (:names) AND slot = 0`)

	// enqueue adds this process to the row's queue while the lock is held, or others are there, and
	// records until when it will wait for a notification. It drops queues of processes that are gone.
	// While the lock is free and somebody else is the first, it is left to that one. It returns the row, as
	// peek does: who joined need not read who holds the lock. Its commit does not wait for the disk: a crash
	// can only lose what concerns waiters.
	enqueue = sqlrun.PerDialect("lock.enqueue", whereNotified(`
		UPDATE {prefix}lock SET waiting_until = {now + :patience},
			waiters = CASE WHEN waiting_until IS NULL OR waiting_until <= {now} THEN ARRAY[CAST(:me AS VARCHAR)]
				WHEN :me = ANY (waiters) THEN waiters ELSE array_append(waiters, CAST(:me AS VARCHAR)) END
		WHERE name = :name AND slot = 0 AND cardinality(waiters) < 200
			AND (state IN ('LOCK', 'EXTEND') AND expire_at > {now} OR waiters[1] <> :me AND waiting_until > {now})
		RETURNING `+fields+`, set_config('synchronous_commit', 'off', true)`))

	// dequeue removes this process from the queue. If the lock has become free meanwhile, and
	// this process was the one to notify, the next one is notified, and has its time.
	dequeue = sqlrun.PerDialect("lock.dequeue", func(d *sqlrun.Dialect) string {
		return whereNotified(returningNext(d, `
		UPDATE {prefix}lock SET waiters = array_remove(waiters, CAST(:me AS VARCHAR)),
			update_time = CASE WHEN state = 'FREE' AND waiters[1] = :me THEN {now} ELSE update_time END
		WHERE name = :name AND slot = 0 AND :me = ANY (waiters)`))(d)
	})

	// passOver removes the first of the queue of a lock that has been free for a while, because it has not come, and
	// returns the next one, to be notified. update_time tells since when the lock has been left to the first.
	passOver = sqlrun.PerDialect("lock.pass-over", whereNotified(`
		UPDATE {prefix}lock SET waiters = waiters[2:], update_time = {now}
		WHERE name = :name AND slot = 0 AND `+isFree+` AND waiters[1] <> :me AND waiting_until > {now}
			AND update_time <= {now + -50000} AND (state = 'FREE' OR expire_at <= {now + -50000})
		RETURNING COALESCE(waiters[1], '')`))

	// tell notifies a process: of a lock that has become free; or itself, to find out whether
	// notifications arrive. It runs in a transaction of its own, so that a notification refused
	// by the server undoes nothing. It does not wait for the disk.
	tell = sqlrun.PerDialect("lock.tell", func(d *sqlrun.Dialect) string {
		if d.Notify == nil {
			return "SELECT 1"
		}
		return "SELECT set_config('synchronous_commit', 'off', true) || CAST(" +
			d.Notify("CAST(:channel AS TEXT)", "CAST(:payload AS TEXT)") + " AS TEXT)"
	})
)

var byName = []string{"name", "slot"}

const fencesOf = `SELECT name FROM {prefix}lock_fence WHERE name IN (:names) AND slot = 0`

// settled is when a lease ends, whatever the database's clock has shown. A row that was written at a time that is yet to come shows a
// clock that went back since, and says what was granted when it was written: expire_at - update_time. As that moment is past, a lease of
// this length from now on ends no sooner than its holder, who measures from before its request. Servers of a cluster that
// are written to side by side differ by less than a minute.
const settled = `CASE WHEN update_time > {now + 60000000} THEN {time {us {now}} + {us expire_at} - {us update_time}} ELSE expire_at END`

// isFree selects locks that can be taken.
const isFree = `(state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at <= {now})`

const grant = `
			takeovers = takeovers + CASE WHEN state <> 'FREE' AND released_at IS NULL THEN 1 ELSE 0 END,
			lock_by = :owner, state = 'LOCK', lock_at = {now}, released_at = NULL, extends = 0,
			meta = :meta, session = :session, {next fence}, update_time = {now}, expire_at = {now + :ttl}`

// fields are what scanInfo reads.
var fields = `name, slot, state, lock_by, ` + sqlrun.Seen("lock_at") + `,
			` + sqlrun.Seen("expire_at") + `,
			` + sqlrun.Seen("released_at") + `, fence, extends, takeovers, meta, session,
			forced_by, ` + sqlrun.Seen("forced_at") + `, forced_why, ` + sqlrun.Seen("update_time") + `, {us {now}}`

var columns = `
		SELECT ` + fields + `
		FROM {prefix}lock`

// channel begins the names of the channels on which waiting processes listen, each on its own.
const channel = "dbcron_lock_"

// inTurn is the condition that a process that waits in turn has no others before it in the row's queue.
func inTurn(d *sqlrun.Dialect) string {
	if d.Notify == nil {
		return ""
	}
	return ` AND ({int :inturn} = 0 OR waiting_until IS NULL OR waiting_until <= {now} OR cardinality(waiters) = 0 OR waiters[1] = :me)`
}

// queueWithout removes this process from the row's queue. Who does not wait is nobody there. The others keep
// their places.
func queueWithout(d *sqlrun.Dialect) string {
	if d.Notify == nil {
		return ""
	}
	return `,
			waiters = CASE WHEN waiting_until > {now} THEN array_remove(waiters, CAST(:me AS VARCHAR)) ELSE CAST(ARRAY[] AS VARCHAR[]) END`
}

// returningNext makes an UPDATE of one row return the first in its queue, for Locker.notifying
// to notify, or nothing if the lock is not free.
func returningNext(d *sqlrun.Dialect, update string) string {
	if d.Notify == nil {
		return update
	}
	return update + `
		RETURNING ` + nextInQueue
}

// nextInQueue is the first in the queue of a lock that is free, or ”.
const nextInQueue = `CASE WHEN state = 'FREE' AND waiting_until > {now} AND cardinality(waiters) > 0 THEN waiters[1] ELSE '' END`

// whereNotified is a statement that only engines with notifications need.
func whereNotified(text string) func(*sqlrun.Dialect) string {
	return func(d *sqlrun.Dialect) string {
		if d.Notify == nil {
			return "SELECT 1"
		}
		return text
	}
}
