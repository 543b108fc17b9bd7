package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// NotifyNobody is the Policy.Notify of a schedule whose failures nobody is told about.
const NotifyNobody = address.Nobody

// Targets parses a list of notification targets, separated by blanks or commas:
//
//	mailto:ada@example.org   mail; "mailto:" may be left out where there is an @
//	https://example.org/in   a webhook
//	none                     nobody, if it stands alone
//
// It returns each target once, as a mailto: or http(s) URL, or an error that says what is wrong.
func Targets(text string) ([]string, error) { return address.ParseTargets(text) }

// An incident is a problem of a schedule.
type incident struct {
	problem string // failed, timeout, lost, missed, late, slow or given-up
	detail  string
	run     int64 // 0: none
	due     time.Time
	anew    bool // report it even after earlier failures
}

// add appends what is to be recorded of an incident. Several of a schedule count as one, the last.
func (rows *noteRows) add(s *Schedule, m incident) {
	own, nobody := address.OwnTargets(s.Notify)
	if nobody {
		return
	}
	row := noteRow{who: s.Name, what: m.problem, said: reason(m.detail), whom: own, run: m.run, due: microsOf(m.due)}
	if m.anew {
		row.anew = 1
	}
	if n := len(*rows); n > 0 && (*rows)[n-1].who == s.Name {
		(*rows)[n-1] = row
		return
	}
	*rows = append(*rows, row)
}

// note records a schedule's problem for the notifiers, in the transaction that records the incident
// itself. Each schedule has one row; see the table notice. left is as in noteAll.
func note(ctx context.Context, tx *sqlrun.Session, s *Schedule, m incident, left *leftovers) error {
	var rows noteRows
	rows.add(s, m)
	return noteAll(ctx, tx, rows, left)
}

// noteAll is note for many schedules, which this transaction has locked. Other transactions may
// insert rows at the same time, for schedules that are late, or delete those whose recovery was
// reported. So it updates the rows that are there, and inserts those that are not. It passes over rows
// that others have locked, and adds them to left, for doLater after the commit. Without left, they are an
// error.
func noteAll(ctx context.Context, tx *sqlrun.Session, rows noteRows, left *leftovers) error {
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, func(a, b noteRow) int { return strings.Compare(a.who, b.who) })
	args := sqlrun.Args{"rows": rows}
	n, err := tx.Exec(ctx, noteAgain, args)
	if err != nil || n == int64(len(rows)) {
		return err
	}
	inserted, err := tx.Exec(ctx, noteFirst, args)
	n += inserted
	if err != nil || n == int64(len(rows)) {
		return err
	}
	args = sqlrun.Args{"names": rows.names()}
	free, err := sqlrun.Select(ctx, tx, noticesFree, args, scanText)
	if err != nil {
		return err
	}
	there, err := sqlrun.Select(ctx, tx, noticesThere, args, scanText)
	if err != nil {
		return err
	}
	held := slices.DeleteFunc(slices.Clone(rows), func(r noteRow) bool {
		return !slices.Contains(there, r.who) || slices.Contains(free, r.who)
	})
	switch {
	case n != int64(len(rows)-len(held)): // a row has appeared or was let go in between: begin anew
		return fmt.Errorf("%w: notices of schedules", errHeld)
	case left == nil:
		return fmt.Errorf("%w: the notice of the schedule %s", errHeld, held[0].who)
	}
	left.notes = append(left.notes, held...)
	return nil
}

func (rows noteRows) names() []string {
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].who
	}
	return names
}

// noteLater keeps incidents whose notices others had locked for noteRest. Of a schedule, the last one counts.
func (s *Scheduler) noteLater(rows noteRows) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		s.unnoted = slices.DeleteFunc(s.unnoted, func(old noteRow) bool { return old.who == r.who })
		s.unnoted = append(s.unnoted, r)
	}
}

// noteRest records the incidents that could not be recorded together with what they are about.
func (s *Scheduler) noteRest(ctx context.Context) error {
	s.mu.Lock()
	rows := s.unnoted
	s.unnoted = nil
	s.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	var left leftovers
	err := s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		left = leftovers{}
		return noteAll(ctx, tx, rows, &left)
	})
	if err != nil {
		left.notes = rows
	}
	s.mu.Lock()
	newer := s.unnoted
	s.unnoted = left.notes
	s.mu.Unlock()
	s.noteLater(newer)
	if err == nil && len(left.notes) > 0 {
		err = fmt.Errorf("%w: the notice of the schedule %s", errHeld, left.notes[0].who)
	}
	return err
}

// NoteLate records that no daemon claims a schedule whose slot is due. It does not change the record
// of a schedule that is known to be in trouble.
func NoteLate(ctx context.Context, tx *dialect.Session, s *Schedule, why string) error {
	return noteNew(ctx, tx, s, incident{problem: "late", detail: why, due: s.Due})
}

// NoteSlow records that a run takes longer than is usual, like NoteLate. It does not name the run: its own good end is the recovery.
func NoteSlow(ctx context.Context, tx *dialect.Session, s *Schedule, r *Run, why string) error {
	return noteNew(ctx, tx, s, incident{problem: "slow", detail: why, due: r.Due})
}

func noteNew(ctx context.Context, tx *dialect.Session, s *Schedule, m incident) error {
	var rows noteRows
	rows.add(s, m)
	if len(rows) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, noteFirst, sqlrun.Args{"rows": rows})
	return err
}

var (
	// noteFirst inserts schedules' rows at their first incident; noteAgain updates them, unless others have locked them.
	// If two transactions insert at once, the key decides. It tries no row that is there, since it would
	// wait for whoever has changed that.
	noteFirst = sqlrun.SQL("scheduler.note-first", `
		INSERT INTO {prefix}notice (subject, name, problem, detail, target, run_id, due_at, times, begun_at, last_at, tell_at)
		SELECT 'schedule', who, what, said, whom, ran, {time slot}, 1, {now}, {now}, {now}
		FROM `+incidents+`
		WHERE NOT EXISTS (SELECT 1 FROM {prefix}notice AS n WHERE n.subject = 'schedule' AND n.name = who) {ignore_duplicate name}`)

	// noteAgain counts failures. It asks for another report only if the trouble got worse, as when a run fails that was slow, and
	// discards a recovery that was not reported yet. MySQL sets columns in this order.
	noteAgain = sqlrun.PerDialect("scheduler.note-again", func(d *sqlrun.Dialect) string {
		condition, also := "", ""
		if d.ArrayRows { // so that the plan uses the key, whatever the statistics say
			condition = "{prefix}notice.subject = 'schedule' AND {prefix}notice.name = ANY (CAST(:rows.who AS TEXT[]))"
			also = " AND n.name = ANY (CAST(:rows.who AS TEXT[]))"
		}
		return d.UpdateFrom("{prefix}notice", []string{"subject", "name"}, `
			tell_at = CASE WHEN picked.afresh = 1 OR {prefix}notice.problem = 'slow' AND picked.what <> 'slow' THEN {now}
				WHEN told_at IS NOT NULL AND well_at IS NOT NULL THEN NULL ELSE tell_at END,
			problem = picked.what, detail = picked.said, target = picked.whom,
			run_id = CASE WHEN picked.ran = 0 THEN run_id ELSE picked.ran END, due_at = COALESCE({time picked.slot}, due_at),
			times = times + 1, last_at = {now}, well_at = NULL`, condition, `
			SELECT n.subject, n.name, what, said, whom, ran, slot, afresh FROM `+incidents+`
			{join_by_key {prefix}notice AS n} ON n.subject = 'schedule' AND n.name = record.who`+also+` LIMIT 10000 {skip_locked}`)
	})

	// noticesFree locks the rows of some schedules that no other transaction has locked; noticesThere reads all.
	noticesFree  = sqlrun.SQL("scheduler.notices-free", noticesOfNames+` {skip_locked}`)
	noticesThere = sqlrun.SQL("scheduler.notices-there", noticesOfNames)
)

const noticesOfNames = `SELECT name FROM {prefix}notice WHERE subject = 'schedule' AND name IN (:names)`

// incidents are the rows of both.
const incidents = `{records rows: who text, what text, said text, whom text, ran int, slot int, afresh int}`
