package scheduler

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A schedule with the spec @reboot has no slots: each host runs it once after it has started, which
// its boot id tells, and not its name: containers have that of their host. The lock on the schedule
// lets one daemon of a host in, and the key of the table schedule_boot no other. A run of it is
// pinned: only daemons of the same host, in the same start, have its lane.
var (
	// bootSchedules finds them by the index of what is due: nothing else but @manual comes so late.
	bootSchedules = sqlrun.SQL("scheduler.boot-schedules", `
		SELECT name FROM {prefix}schedule
		WHERE state = 'active' AND lane = :lane AND next_exec >= {time :never} AND spec = '@reboot'
		ORDER BY name`)

	// bootSeen says that a host is there. Its daemons all write the same.
	bootSeen = sqlrun.SQL("scheduler.boot-seen", `UPDATE {prefix}schedule_boot SET seen_at = {now} WHERE boot = :boot`)

	// bootNoted lists what a start of a host has had.
	bootNoted = sqlrun.SQL("scheduler.boot-noted", `SELECT schedule FROM {prefix}schedule_boot WHERE boot = :boot`)

	// bootHad and noteBoot: the schedule is locked, so that no daemon comes between them, and the key would tell.
	bootHad = sqlrun.SQL("scheduler.boot-had", `
		SELECT boot FROM {prefix}schedule_boot WHERE boot = :boot AND schedule = :schedule`)
	noteBoot = sqlrun.SQL("scheduler.note-boot", `
		INSERT INTO {prefix}schedule_boot (boot, schedule, lane, seen_at) VALUES (:boot, :schedule, :lane, {now})`)

	// goneLanes are those of hosts that nobody has seen for a while. forgetBoots forgets them at last.
	goneLanes = sqlrun.SQL("scheduler.gone-lanes", `
		SELECT DISTINCT b.lane FROM {prefix}schedule_boot AS b
		JOIN {prefix}run AS r ON r.lane = b.lane AND r.next_exec > {time 0} AND r.next_exec <= {now}
		WHERE b.seen_at < {now + :ago}`)
	forgetBoots = sqlrun.SQL("scheduler.forget-boots", `DELETE FROM {prefix}schedule_boot WHERE seen_at < {now + :ago}`)
)

const (
	hostGone   = 10 * time.Minute // a host whose daemons say nothing for so long goes on with nothing
	bootForget = 90 * 24 * time.Hour
	bootMark   = " boot "
)

// atBoot reports whether hosts run the schedule when they have started.
func (s *Schedule) atBoot() bool { return strings.EqualFold(strings.TrimSpace(s.Spec), "@reboot") }

// bootLane is the lane of what only daemons of one host may run, in this start of it.
func bootLane(tag, boot string) string { return tag + bootMark + boot }

// pin returns a lane if it is that of one host, and else nothing.
func pin(lane string) string {
	if _, rest, _ := strings.Cut(lane, " "); strings.HasPrefix(" "+rest, bootMark) { // a tag has no blank
		return lane
	}
	return ""
}

// lookAtBoot sees to what is due since the host has started, once for each schedule and start. The
// first look of a daemon runs what no daemon of the host has run yet. Later looks only note
// schedules that have come since: they run after the next start, as those that somebody adds to
// a crontab do.
func (s *Scheduler) lookAtBoot(ctx context.Context, first bool) error {
	if !s.executesCommands() {
		return nil
	}
	byLane := map[string][]string{}
	found := 0
	for _, tag := range s.opt.Tags {
		args := sqlrun.Args{"lane": (&Schedule{Tag: tag}).lane(), "never": never.UnixMicro()}
		names, err := sqlrun.Select(ctx, &s.db.Session, bootSchedules, args, scanText)
		if err != nil {
			return err
		}
		byLane[bootLane(tag, s.opt.BootID)] = names
		found += len(names)
	}
	s.mu.Lock()
	s.boots = s.boots || found > 0
	s.mu.Unlock()
	if found == 0 {
		return nil
	}
	if s.opt.BootID == "" {
		if first {
			s.opt.Logger.Warn("schedules with @reboot do not run here: this platform does not tell one start of the host from another", "schedules", found)
		}
		return nil
	}
	return s.noteBoots(ctx, byLane, first)
}

func (s *Scheduler) executesCommands() bool {
	for _, kind := range s.opt.Kinds {
		if kind == Commands {
			return true
		}
	}
	return false
}

// noteBoots notes schedules for this start of the host, and makes their runs if run says so.
func (s *Scheduler) noteBoots(ctx context.Context, byLane map[string][]string, run bool) error {
	if _, err := s.db.Exec(ctx, bootSeen, sqlrun.Args{"boot": s.opt.BootID}); err != nil {
		return err
	}
	noted, err := sqlrun.Select(ctx, &s.db.Session, bootNoted, sqlrun.Args{"boot": s.opt.BootID}, scanText)
	if err != nil {
		return err
	}
	done := map[string]bool{}
	for _, name := range noted {
		done[name] = true
	}
	for lane, names := range byLane {
		for _, name := range names {
			if done[name] {
				continue
			}
			if err := s.noteOneBoot(ctx, lane, name, run); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteOneBoot locks the schedule, so that it is still what was found, and makes the run in the
// transaction that the key has let in: both are there, or neither.
func (s *Scheduler) noteOneBoot(ctx context.Context, lane, name string, make bool) error {
	err := s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		c, err := lock(ctx, tx, name)
		if err != nil {
			return err
		}
		if !c.atBoot() || c.stopped() {
			return nil
		}
		args := sqlrun.Args{"boot": s.opt.BootID, "schedule": name, "lane": lane}
		had, err := sqlrun.Select(ctx, tx, bootHad, args, scanText)
		if err != nil || len(had) > 0 {
			return err
		}
		if _, err = tx.Exec(ctx, noteBoot, args); err != nil || !make {
			return err
		}
		r := run{schedule: name, attempt: 1, cause: "boot", pinned: lane}
		if r.due, err = freeSlot(ctx, tx, &c); err != nil {
			return err
		}
		args = r.args(lane)
		args["after_us"] = 0
		_, err = tx.Exec(ctx, wait, sqlrun.Args{"rows": []sqlrun.Args{args}})
		return err
	})
	if errors.Is(err, ErrNotFound) { // removed meanwhile
		return nil
	}
	return err
}

// endOfGone ends what waits for a host, or was cut off on it, that has started anew or is gone: no
// daemon has its lane any more. Each daemon does so; the schedule's lock keeps them apart.
func (s *Scheduler) endOfGone(ctx context.Context) error {
	lanes, err := sqlrun.Select(ctx, &s.db.Session, goneLanes, sqlrun.Args{"ago": -hostGone.Microseconds()}, scanText)
	for _, lane := range lanes {
		if err != nil {
			return err
		}
		_, _, err = s.takeOverFrom(ctx, lane, batch, true)
	}
	if err == nil {
		_, err = s.db.Exec(ctx, forgetBoots, sqlrun.Args{"ago": -bootForget.Microseconds()})
	}
	return err
}

func scanText(rows *sql.Rows) (text string, err error) { return text, rows.Scan(&text) }
