package store

import (
	"context"
	"database/sql"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// NewBlocks creates blocks of queues that are locked.
func NewBlocks(ctx context.Context, tx *sqlrun.Session, queues []int, first, n, generation int, fifo bool) error {
	is := "no"
	if fifo {
		is = "yes"
	}
	var rows []sqlrun.Args
	for _, queue := range queues {
		for i := range n {
			rows = append(rows, sqlrun.Args{"queue": queue, "divided": first + i, "generation": generation, "fifo": is})
		}
	}
	for part := range slices.Chunk(rows, Chunk) {
		if _, err := tx.Exec(ctx, CreateBlocks, sqlrun.Args{"rows": part}); err != nil {
			return err
		}
	}
	return nil
}

// A LeaseRow is one lease as stored: its state, holder and fence.
type LeaseRow struct {
	State, LockBy string
	Fence         int64
	Live, InTime  bool // the process that holds the lease, or held it last
}

// Free reports whether anybody may take the lease.
func (h *LeaseRow) Free() bool { return h.State == "FREE" || !h.Live }

// A BlockRow is a stored block.
type BlockRow struct {
	LeaseRow
	Queue               int
	Divided, Generation int
	FIFO                bool
	Batch, Suspects     int
	ForKind             string
	LockAt              int64
	Left                bool
}

// ScanBlock reads a row of [ListBlocks].
func ScanBlock(rows *sql.Rows) (r BlockRow, err error) {
	return r, rows.Scan(&r.Queue, &r.Divided, &r.Generation, &r.State, &r.LockBy, &r.Fence, &r.Batch, &r.Suspects,
		&r.LockAt, &r.Live, &r.InTime, &r.Left, &r.FIFO, &r.ForKind)
}

// Blocks of queues, and their leases.
var (
	ListBlocks = sqlrun.SQL("queue.blocks", `
		SELECT b.queue_id, b.divided, b.generation, b.state, b.lock_by, b.fence, b.batch, b.suspects, COALESCE({us b.lock_at}, 0),
			CASE WHEN n.state = 'live' THEN 1 ELSE 0 END, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END, CASE WHEN n.state = 'gone' THEN 1 ELSE 0 END,
			CASE WHEN b.fifo = 'yes' THEN 1 ELSE 0 END, b.for_kind
		FROM {prefix}queue_block AS b LEFT JOIN {prefix}node AS n ON n.name = b.lock_by
		WHERE {in b.queue_id :queues} ORDER BY b.queue_id, b.divided`)

	// FreeBlocks locks those of some blocks that are what their taker saw, and that are free or whose
	// holders are not live. It passes over blocks that others are taking. TakeBlocks leases them in the same
	// transaction. A fence has one holder, so with the state that the taker saw, what it concluded
	// from that still holds: whether the holder died (1), which raises suspicion against its jobs, or lives
	// and has said so (2), which proves nothing.
	FreeBlocks = sqlrun.SQL("queue.free-blocks", `
		SELECT b.queue_id, b.divided FROM {records rows: queue int, block int, seen int, was text}
		{join_by_key {prefix}queue_block AS b} ON b.queue_id = record.queue AND b.divided = record.block
		WHERE b.fence = record.seen AND b.state = record.was
			AND (b.state = 'FREE' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = b.lock_by AND n.state = 'live')) {skip_locked}`)

	TakeBlocks = sqlrun.PerDialect("queue.take", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}queue_block", []string{"queue_id", "divided"},
			`suspects = CASE picked.died WHEN 1 THEN suspects + 1 WHEN 2 THEN suspects ELSE 0 END, state = 'LEASED', lock_by = :node, lock_at = {now}, batch = :batch, fence = fence + 1`,
			"", // FreeBlocks has locked them
			`SELECT queue AS queue_id, block AS divided, died FROM {records rows: queue int, block int, died int}`)
	})

	// HandOverBlocks frees blocks, and says for which kind of job each. Takers go by that, but only
	// the time until the job begins depends on it. It compares the worker's fences, so it does not
	// change a block that somebody else has taken.
	HandOverBlocks = sqlrun.PerDialect("queue.hand-over", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}queue_block", []string{"queue_id", "divided"}, `state = 'FREE', for_kind = picked.heir`,
			`{prefix}queue_block.fence = picked.held AND {prefix}queue_block.lock_by = :node`,
			lockedBlocks(`held, heir`, `held int, heir text`))
	})

	// NoteBatch stores how many jobs the block's worker reads at once from now on. It compares
	// the worker's fence, so it does not change a block that somebody else has taken.
	NoteBatch = sqlrun.UpdateFree("queue.note-batch", "{prefix}queue_block", []string{"queue_id", "divided"}, `batch = :batch`,
		`queue_id = :queue AND divided = :divided AND fence = :fence AND lock_by = :node`)

	// TrustBlocks ends the suspicion that a job of some blocks crashed their worker. It compares the
	// worker's fences, so it does not clear a block that somebody else has taken.
	TrustBlocks = sqlrun.PerDialect("queue.trust", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}queue_block", []string{"queue_id", "divided"}, `suspects = 0`,
			`{prefix}queue_block.fence = picked.held AND {prefix}queue_block.lock_by = :node`,
			lockedBlocks(`held`, `held int`))
	})

	// StillMine is the last read of a transaction that moves jobs of a block. A taker of the
	// block either waits for the transaction, or was first and makes StillMine fail.
	StillMine = sqlrun.SQL("queue.still-mine", `
		SELECT fence FROM {prefix}queue_block WHERE queue_id = :queue AND divided = :divided AND fence = :fence AND lock_by = :node {share_locked}`)

	// DrainedBlocks reports whether a generation of blocks has no jobs left, and the age of the
	// next one.
	DrainedBlocks = sqlrun.SQL("queue.drained", `
		SELECT CASE WHEN `+anyIn("job")+` OR `+anyIn("job_delayed")+` OR `+anyIn("job_running")+` THEN 0 ELSE 1 END,
			(SELECT {us {now}} - {us MIN(insert_time)} FROM {prefix}queue_block WHERE queue_id = :queue AND generation > :generation)`)

	// RetireBlocks removes the blocks of a drained generation. StrayBlocks finds a job that is
	// committed later all the same.
	RetireBlocks = sqlrun.DeleteFree("queue.retire", "{prefix}queue_block", []string{"queue_id", "divided"},
		`queue_id = :queue AND generation = :generation`)

	// StrayBlocks finds the first block with jobs in each of some gaps between the existing
	// blocks.
	StrayBlocks = sqlrun.SQL("queue.strays", `SELECT `+firstBetween("job")+`, `+firstBetween("job_delayed")+
		` FROM {records gaps: above int, below int}`)
)

// lockedBlocks picks blocks that are given by records, with more columns of these, and locks their
// rows. It passes over rows that others have locked: handlers' transactions, which end with a locking read
// of the block, and sessions at the prompt.
func lockedBlocks(columns, records string) string {
	return `SELECT b.queue_id, b.divided, ` + columns + ` FROM {records rows: queue int, block int, ` + records + `}
		{join_by_key {prefix}queue_block AS b} ON b.queue_id = record.queue AND b.divided = record.block LIMIT 10000 {skip_locked}`
}

// anyIn returns a condition: some blocks have jobs in a table. It selects the first job by the
// key. With EXISTS, an engine may begin anywhere in the table.
func anyIn(table string) string {
	return `(SELECT divided FROM {prefix}` + table +
		` WHERE queue_id = :queue AND divided >= :first AND divided <= :last AND ` + notSentinel + ` ORDER BY divided LIMIT 1) IS NOT NULL`
}

func firstBetween(table string) string {
	return `(SELECT divided FROM {prefix}` + table +
		` WHERE queue_id = {int :queue} AND divided > above AND divided < below AND ` + notSentinel + ` ORDER BY divided LIMIT 1)`
}

// Blocks reads the blocks of some queues.
func Blocks(ctx context.Context, on *sqlrun.Session, queues ...int) ([]BlockRow, error) {
	return sqlrun.Select(ctx, on, ListBlocks, sqlrun.Args{"queues": IDList(queues)}, ScanBlock)
}
