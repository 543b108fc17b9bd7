package scheduler

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A schedule with the spec @reboot has no slots: each host runs it once after each start. A
// host is identified by its boot id, not by its name: containers have their host's boot id. The
// lock on the schedule admits one daemon of a host, and the key of the table schedule_boot no
// other. Its run is pinned: only daemons of the same host, in the same start, have its lane.
var (
	// bootSchedules finds them by the index of due times: only @manual schedules are that far
	// in the future, too.
	bootSchedules = sqlrun.SQL("scheduler.boot-schedules", `
		SELECT name FROM {prefix}schedule
		WHERE state = 'active' AND lane = :lane AND next_exec >= {time :never} AND spec = '@reboot'
		ORDER BY name`)

	// bootSeen records that a host is up. All of its daemons write the same.
	bootSeen = sqlrun.UpdateFree("scheduler.boot-seen", "{prefix}schedule_boot", []string{"boot", "schedule"},
		`seen_at = {now}`, `boot = :boot`)

	// bootNoted lists the schedules already handled in this start of a host.
	bootNoted = sqlrun.SQL("scheduler.boot-noted", `SELECT schedule FROM {prefix}schedule_boot WHERE boot = :boot`)

	// bootHad and noteBoot run with the schedule locked, so that no daemon comes in between; if
	// one did, the key would refuse its row.
	bootHad = sqlrun.SQL("scheduler.boot-had", `
		SELECT boot FROM {prefix}schedule_boot WHERE boot = :boot AND schedule = :schedule`)
	noteBoot = sqlrun.SQL("scheduler.note-boot", `
		INSERT INTO {prefix}schedule_boot (boot, schedule, lane, seen_at) VALUES (:boot, :schedule, :lane, {now})`)

	// goneLanes returns the lanes of hosts that were not seen for a while. forgetBoots finally
	// deletes their rows.
	goneLanes = sqlrun.SQL("scheduler.gone-lanes", `
		SELECT DISTINCT b.lane FROM {prefix}schedule_boot AS b
		JOIN {prefix}run AS r ON r.lane = b.lane AND r.next_exec > {time 0} AND r.next_exec <= {now}
		WHERE b.seen_at < {now + :ago}`)
	forgetBoots = sqlrun.DeleteFree("scheduler.forget-boots", "{prefix}schedule_boot", []string{"boot", "schedule"}, `seen_at < {now + :ago}`)
)

const (
	hostGone   = 10 * time.Minute // a host whose daemons are silent for this long continues nothing
	bootForget = 90 * 24 * time.Hour
	bootMark   = " boot "
)

// atBoot reports whether hosts run the schedule after they have started.
func (s *Schedule) atBoot() bool { return strings.EqualFold(strings.TrimSpace(s.Spec), "@reboot") }

// bootLane is the lane of runs that only daemons of one host may execute, during one start of
// it.
func bootLane(tag, boot string) string { return tag + bootMark + boot }

// pin returns the lane if it belongs to one host, and otherwise nothing.
func pin(lane string) string {
	if _, rest, _ := strings.Cut(lane, " "); strings.HasPrefix(" "+rest, bootMark) { // a tag has no blank
		return lane
	}
	return ""
}

// lookAtBoot runs what is due since the host has started, once per schedule and start. A
// daemon's first check runs what no daemon of the host has run yet. Later checks only record
// new schedules: these first run after the next start, like lines added to a crontab.
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

// noteBoots records schedules for this start of the host, and creates their runs if run is set.
func (s *Scheduler) noteBoots(ctx context.Context, byLane map[string][]string, run bool) error {
	if _, err := s.db.Exec(ctx, bootSeen, sqlrun.Args{"boot": s.opt.BootID}); err != nil {
		return err
	}
	noted, err := sqlrun.Select(ctx, &s.db.Session, bootNoted, sqlrun.Args{"boot": s.opt.BootID}, scanText)
	if err != nil {
		return err
	}
	var held error // of a schedule that another transaction has locked; the others go on
	done := map[string]bool{}
	for _, name := range noted {
		done[name] = true
	}
	for lane, names := range byLane {
		for _, name := range names {
			if done[name] {
				continue
			}
			if err := s.noteOneBoot(ctx, lane, name, run); errors.Is(err, errHeld) {
				held = err
			} else if err != nil {
				return err
			}
		}
	}
	return held
}

// noteOneBoot locks the schedule, so that it is still what was found. It creates the run in the
// transaction that the key has admitted: so both rows exist, or neither.
func (s *Scheduler) noteOneBoot(ctx context.Context, lane, name string, make bool) error {
	err := s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		c, err := lockFree(ctx, tx, name)
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

// endOfGone ends runs that wait for, or were cut off on, a host that has been restarted or is
// gone: no daemon has their lane any more. Each daemon does this; the schedule's lock keeps
// them apart.
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
