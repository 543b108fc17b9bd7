package scheduler

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

var (
	// ErrExists means that a schedule has that name already.
	ErrExists = errors.New("a schedule with this name exists")

	// ErrNotFound means that no schedule has that name.
	ErrNotFound = errors.New("no schedule with this name")

	// ErrInvalid means that a schedule is refused, for its spec or anything
	// else. The text says why.
	ErrInvalid = cronspec.ErrInvalid
)

// A Schedule says what runs when. Who can write one can run commands with the
// rights of the daemons.
type Schedule struct {
	ID   int64
	Name string // up to 200 characters, compared by bytes

	// Source is the file that the schedule comes from, and Key what it is
	// recognized by there: see Import. Both are empty for one made by hand.
	Source, Key string

	Spec string // see cronspec
	Zone string // of the tz database; default: UTC
	DST  string // vixie or wall; default: vixie

	Command string            // for the shell
	Stdin   string            // text for its standard input
	Env     map[string]string // beside what Options.Env gives; SHELL names the shell

	State  string    // active, paused, or failed: it cannot be planned, see Reason
	Reason string    // why it is not active
	Due    time.Time // the next slot, or zero
}

// Slots returns the instants that the schedule names.
func (s *Schedule) Slots() (*cronspec.Schedule, error) { return cronspec.New(s.Spec, s.Zone, s.DST) }

// check refuses what cannot be stored or run, before anything is changed.
func (s *Schedule) check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if len(s.Source) > 255 || len(s.Key) > 255 {
		return fmt.Errorf("%w: %s: the path of its file is longer than 255 bytes", ErrInvalid, s.Name)
	}
	if strings.TrimSpace(s.Command) == "" {
		return fmt.Errorf("%w: %s: there is no command", ErrInvalid, s.Name)
	}
	texts := []string{s.Command, s.Stdin}
	for name, value := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("%w: %s: environment variable %q: a name has neither = nor NUL, and is not empty", ErrInvalid, s.Name, name)
		}
		texts = append(texts, name, value)
	}
	for _, text := range texts {
		if len(text) > 1<<20 {
			return fmt.Errorf("%w: %s: a command, its input and each variable may have 1 MiB", ErrInvalid, s.Name)
		}
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fmt.Errorf("%w: %s: the command, its input or environment is not UTF-8 text", ErrInvalid, s.Name)
		}
	}
	return nil
}

// CheckName returns ErrInvalid for what cannot name a schedule.
func CheckName(name string) error {
	if err := dialect.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// args gives a schedule's columns, and the first slot after now.
func (s *Schedule) args(now time.Time) (dialect.Args, error) {
	slots, err := s.Slots()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	first, ok := slots.Next(now)
	if !ok {
		return nil, fmt.Errorf("%w: %s: %q has no slot after %s", ErrInvalid, s.Name, s.Spec, now.Format(time.DateTime))
	}
	dst, err := cronspec.ParseDST(s.DST)
	if err != nil {
		return nil, err
	}
	env := []byte("{}")
	if len(s.Env) > 0 {
		if env, err = json.Marshal(s.Env); err != nil {
			return nil, err
		}
	}
	return dialect.Args{
		"name": s.Name, "source": null(s.Source), "key": null(s.Key),
		"spec": slots.Spec().String(), "zone": slots.Location().String(), "dst": string(dst),
		"command": s.Command, "stdin": s.Stdin, "env": string(env), "due": first.UnixMicro(),
	}, nil
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Add stores a schedule made by hand. Its first slot is the first one after
// the database's now. It returns ErrInvalid, or ErrExists.
func Add(ctx context.Context, db *dialect.DB, s Schedule) error {
	s.Source, s.Key = "", ""
	if err := s.check(); err != nil {
		return err
	}
	now, err := clock(ctx, &db.Session)
	if err != nil {
		return err
	}
	args, err := s.args(now)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, insert, args)
	if db.Dialect.Duplicate(err) {
		return fmt.Errorf("%w: %s", ErrExists, s.Name)
	}
	return err
}

// Delete removes a schedule. Its runs stay in the history. It returns
// ErrNotFound.
func Delete(ctx context.Context, db *dialect.DB, name string) error {
	n, err := db.Exec(ctx, remove, dialect.Args{"name": name})
	if err == nil && n == 0 {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return err
}

// Get returns the schedule with a name, or ErrNotFound.
func Get(ctx context.Context, db *dialect.DB, name string) (Schedule, error) {
	found, err := dialect.Select(ctx, &db.Session, get, dialect.Args{"name": name}, scanSchedule)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return Schedule{}, err
	}
	return found[0], nil
}

// List returns up to limit schedules, by name, that come after a name; "" is
// before the first.
func List(ctx context.Context, db *dialect.DB, after string, limit int) ([]Schedule, error) {
	return dialect.Select(ctx, &db.Session, list, dialect.Args{"after": after, "limit": limit}, scanSchedule)
}

// Clock returns the database's present time, by which everything is decided.
func Clock(ctx context.Context, db *dialect.DB) (time.Time, error) { return clock(ctx, &db.Session) }

func clock(ctx context.Context, s *dialect.Session) (time.Time, error) {
	var us int64
	err := s.Get(ctx, readClock, nil, &us)
	return time.UnixMicro(us).UTC(), err
}

func scanSchedule(rows *sql.Rows) (s Schedule, err error) {
	var env string
	var due int64
	err = rows.Scan(&s.ID, &s.Name, &s.Source, &s.Key, &s.Spec, &s.Zone, &s.DST, &s.Command, &s.Stdin, &env,
		&s.State, &s.Reason, &due)
	if err != nil {
		return s, err
	}
	s.Due = instantOf(due)
	if s.Env, err = parseEnv(env); err != nil {
		s.Reason = err.Error() // a row that a person got wrong must not hide the others
	}
	return s, nil
}

// instantOf reads µs since 1970, where 0 stands for no time.
func instantOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func parseEnv(text string) (env map[string]string, err error) {
	if err := json.Unmarshal([]byte(text), &env); err != nil {
		return nil, fmt.Errorf("env is not a JSON object of strings: %w", err)
	}
	return env, nil
}
