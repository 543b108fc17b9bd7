package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Settings are the settings of a queue. Package admin documents each.
type Settings struct {
	Name          string
	State         string
	Reason        string
	KeyRetry      string
	MaxAttempts   int
	MaxCrashes    int
	RetryDelay    time.Duration
	RetryMaxDelay time.Duration
	Timeout       time.Duration
	MaxTimeout    time.Duration
	MaxPayload    int
	OriginShare   int
	KeepDead      time.Duration
	KeepDeadMax   int
	KeepDone      time.Duration
	PollMin       time.Duration
	PollMax       time.Duration
	FIFO          bool
	Fair          bool
	Notify        string
	Blocks        int
	Wrong         string
}

// A Queue is a stored queue.
type Queue struct {
	Settings
	ID          int
	Ordered     bool            // it has ordering keys
	Bad, Why    []string        // the columns that mean nothing, and what is wrong with each; Wrong is about the first
	Generations []Generation    // of its blocks, in order
	Shares      map[string]int  // of its tenants, as workers of a fair queue read them
	At          instant.Instant // when it was read
}

// ReadQueue reads a queue with a statement such as [GetQueue]. It returns ErrNotFound if the
// queue does not exist, or has no blocks yet.
func ReadQueue(ctx context.Context, on *sqlrun.Session, stmt *sqlrun.Stmt, name string) (*Queue, error) {
	at := instant.Now()
	found, err := SelectQueues(ctx, on, stmt, sqlrun.Args{"name": name})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || found[0].Blocks == 0 {
		return nil, fmt.Errorf("%w: queue %q", ErrNotFound, name)
	}
	found[0].At = at
	return found[0], nil
}

// Table is what can be set of a queue, in the order of the columns.
var Table = setting.Definite(
	setting.Of("key_retry", setting.OneOf("hold", "pass"), func(q *Settings) *string { return &q.KeyRetry },
		"hold", "While a job waits for its next attempt, the later jobs of its key wait, too (hold), or are done (pass)."),
	setting.Of("fifo", setting.Bool(), func(q *Settings) *bool { return &q.FIFO },
		"false", "Whether jobs are done one after the other, in the order in which they were enqueued.").Elsewhere(), // a column of its blocks
	setting.Of("fair", setting.Bool(), func(q *Settings) *bool { return &q.Fair },
		"false", "Whether the tenants that have jobs have equal turns, or as many as their shares say."),
	setting.Of("max_attempts", setting.Number(maxNumber), func(q *Settings) *int { return &q.MaxAttempts },
		"10", "A job is dead after this many failed attempts."),
	setting.Of("max_crashes", setting.Number(maxNumber), func(q *Settings) *int { return &q.MaxCrashes },
		"3", "A job is dead after this many workers died while they did it."),
	setting.Of("retry_delay", span("none"), func(q *Settings) *time.Duration { return &q.RetryDelay },
		"10s", "The time before the second attempt; it doubles with each further one."),
	setting.Of("retry_max_delay", span("none"), func(q *Settings) *time.Duration { return &q.RetryMaxDelay },
		"1h", "The longest time between two attempts."),
	setting.Of("timeout", span("none"), func(q *Settings) *time.Duration { return &q.Timeout },
		"none", "An attempt fails after this long."),
	setting.Of("max_timeout", span("none"), func(q *Settings) *time.Duration { return &q.MaxTimeout },
		"1h", "The longest timeout that a job may bring, unless that of the queue is longer."),
	setting.Of("origin_share", setting.Number(100), func(q *Settings) *int { return &q.OriginShare },
		"50", "Where jobs are sent to endpoints of their own: the percentage of the slots that one origin may have while there are jobs for others."),
	setting.Of("max_payload", setting.Bytes(), func(q *Settings) *int { return &q.MaxPayload },
		"1MiB", "The greatest size of a payload."),
	setting.Of("keep_dead", span("none", "forever"), func(q *Settings) *time.Duration { return &q.KeepDead },
		"90d", "How long dead jobs are kept."),
	setting.Of("keep_dead_max", setting.NumberOr("all", 0, maxNumber), func(q *Settings) *int { return &q.KeepDeadMax },
		"all", "About how many dead jobs are kept, those that were enqueued last."),
	setting.Of("keep_done", span("none"), func(q *Settings) *time.Duration { return &q.KeepDone },
		"none", "How long jobs that are done are kept."),
	setting.Of("poll_min", setting.SpanOf(time.Millisecond, time.Hour), func(q *Settings) *time.Duration { return &q.PollMin },
		"2ms", "The shortest time between two polls of a worker, after jobs were found, where workers are not notified."),
	setting.Of("poll_max", setting.SpanOf(time.Millisecond, time.Hour), func(q *Settings) *time.Duration { return &q.PollMax },
		"250ms", "The longest time between two polls of a worker."),
	setting.Of("notify", setting.Targets(), func(q *Settings) *string { return &q.Notify },
		"", "Who is notified when the queue has dead letters or is behind, and when that is over: "+
			"mail addresses and URLs with commas between, or none.").
		Else("the daemons' setting"),
)

// span is a length of time without a least one.
func span(words ...string) setting.Form[time.Duration] {
	return setting.SpanOf(1, plain.LongestDuration, words...)
}

// stored are those that are columns.
var stored = setting.Stored(Table)

// maxNumber is the greatest number in settings.
const maxNumber = 1_000_000

// scanQueue reads a row, which may have been written by hand: what is wrong with it is in the result, and no error. Such
// a queue has the defaults for what means nothing, and keeps what it was perhaps to keep. Its jobs wait, see [Queue.Active].
func scanQueue(rows *sql.Rows) (*Queue, error) {
	q := Queue{Generations: make([]Generation, 1)}
	g := &q.Generations[0]
	var row sqlrun.Reading
	var ordered string
	places, texts := setting.PlacesOf(stored, &row)
	places = append([]any{&q.ID, row.Into("name", &q.Name), row.Into("state", &q.State), row.Into("reason", &q.Reason), row.Into("ordered", &ordered)}, places...)
	err := rows.Scan(append(places, &g.Number, &g.First, &g.Blocks, &g.From, &g.FIFO)...)
	q.Blocks, q.FIFO = g.Blocks, g.FIFO
	g.From += ResizeAfter.Microseconds()
	q.Ordered = ordered != "no" || q.FIFO
	setting.Read(stored, &q.Settings, texts, &row)
	for _, column := range row.Of {
		switch column {
		case "keep_dead":
			q.KeepDead = -1
		case "keep_done":
			q.KeepDone = plain.LongestDuration
		}
	}
	if name := sqlrun.CheckName(q.Name); name != nil {
		row.Note("name", name.Error())
	}
	if ordered != "no" && ordered != "yes" {
		row.Note("ordered", fmt.Sprintf("%q is neither yes nor no", ordered))
	}
	if q.Bad, q.Why = row.Of, row.Why; q.ID < 1 || q.ID > math.MaxInt32 {
		row.Note("queue_id", fmt.Sprintf("%d is not 1 to %d", q.ID, math.MaxInt32))
	}
	var invalid *InvalidError
	if errors.As(q.Check(), &invalid) { // also of columns that contradict one another
		row.Note(invalid.Field, invalid.Problem)
	}
	q.Wrong = row.Wrong
	return &q, err
}

// Active reports whether jobs of the queue may begin. Those of one whose row is wrong wait until it is repaired.
func (q *Queue) Active() bool { return q.State == "active" && q.Wrong == "" }

// SelectQueues reads queues with a statement that returns a row for each generation of their
// blocks.
func SelectQueues(ctx context.Context, db *sqlrun.Session, stmt *sqlrun.Stmt, args sqlrun.Args) (all []*Queue, err error) {
	rows, err := sqlrun.Select(ctx, db, stmt, args, scanQueue)
	for _, q := range rows {
		if n := len(all); n > 0 && all[n-1].ID == q.ID {
			q.Generations = append(all[n-1].Generations, q.Generations...)
			all[n-1] = q
			continue
		}
		all = append(all, q)
	}
	return all, err
}

// Defaults returns the settings of a new queue: the defaults of the table's columns.
func Defaults(name string) Settings {
	q := Settings{Name: name, State: "active"}
	for i := range Table {
		_ = Table[i].Set(&q, "") // a test checks that defaults are valid
	}
	return q
}

// Check returns an [InvalidError] about the first invalid setting.
func (q *Settings) Check() error {
	if q.State != "active" && q.State != "paused" && q.State != "deleted" {
		return Invalid("state", "%q is not active, paused or deleted", q.State)
	}
	for i := range Table {
		if text := Table[i].Problem(q); text != "" {
			return Invalid(Table[i].Name, "%s", text)
		}
	}
	switch {
	case q.RetryMaxDelay < q.RetryDelay:
		return Invalid("retry_max_delay", "%v is less than the retry_delay of %v", q.RetryMaxDelay, q.RetryDelay)
	case q.FIFO && q.Fair:
		return Invalid("fair", "a queue cannot be both FIFO and fair; turn one of them off")
	case q.PollMax < q.PollMin:
		return Invalid("poll_max", "%v is less than the poll_min of %v", q.PollMax, q.PollMin)
	}
	return nil
}

// LongestTimeout returns the longest timeout that a job may bring; 0: any.
func (q *Settings) LongestTimeout() time.Duration {
	if q.MaxTimeout == 0 {
		return 0
	}
	return max(q.MaxTimeout, q.Timeout)
}

// Args returns the arguments of [SetQueue].
func (q *Settings) Args(queue int) sqlrun.Args {
	args := sqlrun.Args{"queue": queue, "state": q.State, "reason": q.Reason}
	setting.Args(stored, q, args)
	return args
}

// DefaultQueue is the queue of jobs that name none and have no route.
const DefaultQueue = "default"

// SettingsAge is the maximum age of what a producer knows of a queue.
const SettingsAge = 2 * time.Second

// MakeQueue creates a queue with its blocks in a transaction; concurrent creators share the
// result.
func MakeQueue(ctx context.Context, tx *sqlrun.Session, name string, n int, fifo bool) error {
	return MakeQueues(ctx, tx, []string{name}, n, fifo)
}

// MakeQueues makes several in a transaction, each once.
func MakeQueues(ctx context.Context, tx *sqlrun.Session, names []string, n int, fifo bool) error {
	names = slices.Sorted(slices.Values(names))
	for _, name := range names {
		if err := sqlrun.CheckName(name); err != nil { // a route may have been written by hand
			return Invalid("queue", "%v", err)
		}
	}
	missing, blockless, err := createQueues(ctx, tx, CreateQueues, names)
	// The engine counts on from the greatest number that a person has written. Where that leads to none, numbers are drawn.
	for tries := 0; (len(missing) > 0 || tx.Dialect.Refused(err)) && tries < 5; tries++ {
		left := missing
		if err != nil {
			left = names
		}
		var others []int
		var again error
		if missing, others, again = createQueues(ctx, tx, CreateNumbered, left); again != nil {
			return cmp.Or(err, again) // it was refused for another reason
		}
		blockless, err = append(blockless, others...), nil
	}
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("no number is free for the queue %q", missing[0])
	}
	if err != nil {
		return err
	}
	return NewBlocks(ctx, tx, blockless, 0, n, 1, fifo)
}

// mostDrawn is the greatest number that is drawn for a queue. It is far below the greatest one that there can be.
const mostDrawn = 1 << 30

// createQueues makes queues with a statement, and locks them. It returns those of which there is still none, and the ids of
// those that have no blocks yet.
func createQueues(ctx context.Context, tx *sqlrun.Session, stmt *sqlrun.Stmt, names []string) (missing []string, ids []int, err error) {
	rows := make([]sqlrun.Args, len(names))
	for i, name := range names {
		if rows[i] = (sqlrun.Args{"name": name}); stmt == CreateNumbered {
			rows[i]["queue"] = 1 + rand.IntN(mostDrawn) // #nosec G404 -- the key decides who has it
		}
	}
	if _, err := tx.Exec(ctx, stmt, sqlrun.Args{"rows": rows}); err != nil {
		return nil, nil, err
	}
	there := map[string]bool{}
	_, err = sqlrun.Select(ctx, tx, LockQueues, sqlrun.Args{"names": names}, func(rows *sql.Rows) (none struct{}, err error) {
		var id, blocks int
		var name string
		if err = rows.Scan(&id, &name, &blocks); err == nil && blocks == 0 {
			ids = append(ids, id)
		}
		there[name] = true
		return none, err
	})
	missing = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return there[name] })
	return missing, ids, err
}
