package scheduler

import (
	"context"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/targets"
)

// NotifyNobody is the Policy.Notify of a schedule whose failures nobody is told about.
const NotifyNobody = targets.Nobody

// Targets parses a list of notification targets, separated by blanks or commas:
//
//	mailto:ada@example.org   mail; "mailto:" may be left out where there is an @
//	https://example.org/in   a webhook
//	none                     nobody, if it stands alone
//
// It returns each target once, as a mailto: or http(s) URL, or an error that says what is wrong.
func Targets(text string) ([]string, error) { return targets.Parse(text) }

// A mishap is a problem of a schedule.
type mishap struct {
	problem string // failed, timeout, lost, missed, late or given-up
	detail  string
	run     int64 // 0: none
	due     time.Time
	anew    bool // report it even after earlier failures
}

// note records a schedule's problem for the notifiers, in the transaction that records the mishap
// itself. Each schedule has one row; see the table notice.
//
// Another transaction may insert the row at the same time, or delete it after a recovery was
// reported. One of the three statements finds what it needs in each case.
func note(ctx context.Context, tx *sqlrun.Session, s *Schedule, m mishap) error {
	own, nobody := targets.Own(s.Notify)
	if nobody {
		return nil
	}
	args := sqlrun.Args{
		"name": s.Name, "problem": m.problem, "detail": reason(m.detail), "target": own,
		"run": m.run, "due": micros(m.due), "anew": 0,
	}
	if m.anew {
		args["anew"] = 1
	}
	for _, try := range []*sqlrun.Stmt{noteAgain, noteFirst, noteAgain} {
		if n, err := tx.Exec(ctx, try, args); err != nil || n > 0 {
			return err
		}
	}
	return nil
}

// NoteLate records that no daemon claims a schedule whose slot is due. It does not change the record
// of a schedule that is known to be in trouble.
func NoteLate(ctx context.Context, tx *dialect.Session, s *Schedule, why string) error {
	own, nobody := targets.Own(s.Notify)
	if nobody {
		return nil
	}
	_, err := tx.Exec(ctx, noteFirst, sqlrun.Args{
		"name": s.Name, "problem": "late", "detail": reason(why), "target": own, "run": 0, "due": micros(s.Due),
	})
	return err
}

var (
	// noteFirst inserts a schedule's row at its first mishap; noteAgain updates it. If two
	// transactions insert at once, the key decides.
	noteFirst = sqlrun.SQL("scheduler.note-first", `
		INSERT INTO {prefix}notice (subject, name, problem, detail, target, run_id, due_at, times, begun_at, last_at, tell_at)
		VALUES ('schedule', :name, :problem, :detail, :target, :run, {time :due}, 1, {now}, {now}, {now})
		{ignore_duplicate name}`)

	// noteAgain counts failures. It asks for another report only if the trouble got worse, and
	// discards a recovery that was not reported yet. MySQL sets columns in this order.
	noteAgain = sqlrun.SQL("scheduler.note-again", `
		UPDATE {prefix}notice SET problem = :problem, detail = :detail, target = :target,
			run_id = CASE WHEN {int :run} = 0 THEN run_id ELSE {int :run} END, due_at = COALESCE({time :due}, due_at),
			times = times + 1, last_at = {now}, tell_at = CASE WHEN {int :anew} = 1 THEN {now} WHEN told_at IS NOT NULL AND well_at IS NOT NULL THEN NULL ELSE tell_at END,
			well_at = NULL
		WHERE subject = 'schedule' AND name = :name`)
)
