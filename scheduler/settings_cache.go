package scheduler

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A claim reads the settings of each schedule, some 40 columns that hardly ever change. The statement
// joins them to one text, and this file keeps what the texts mean: settings that were read before are
// not scanned, parsed and checked again. The text itself is the key, so that any change is noticed,
// also one that somebody has made by SQL, and schedules with the same settings share an entry.

// between stands between two columns of a text. Its end is not its beginning, so it is found where it
// is. A text in which a column contains it, or is NULL, has another number of parts than there are
// columns, and means nothing: that row is read column by column.
const between = "<|>"

// known caches settings by their text.
var known settingsCache

type settingsCache struct {
	mu     sync.Mutex
	byText map[string]*knownSettings
	bytes  int
}

// Settings as they were read: a Schedule without its name and state, and what is wrong with them.
type knownSettings struct {
	Schedule
	bad   error // a column that cannot be read
	sound bool  // they are valid
}

// knownLimit and knownBytes bound the cache; when it is full, it is emptied. Texts longer than
// knownLongest do not enter it.
const (
	knownLimit   = 10_000
	knownBytes   = 16 << 20
	knownLongest = 16 << 10
)

// get returns the settings that a text stands for, or nil if they cannot be told from it.
func (k *settingsCache) get(text string) *knownSettings {
	k.mu.Lock()
	s := k.byText[text]
	k.mu.Unlock()
	if s != nil {
		return s
	}
	if s = parseSettings(text); s == nil || len(text) > knownLongest {
		return s
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byText == nil || len(k.byText) >= knownLimit || k.bytes > knownBytes {
		k.byText, k.bytes = map[string]*knownSettings{}, 0
	}
	k.byText[text] = s
	k.bytes += len(text)
	return s
}

func parseSettings(text string) *knownSettings {
	parts := strings.Split(text, between)
	if len(parts) != len(settingColumns) {
		return nil
	}
	var s knownSettings
	s.bad = setting.Load(settingColumns, &s.Schedule, parts)
	filled := s.filled()
	s.sound = s.bad == nil && len(filled.settingsProblems()) == 0
	return &s
}

// selectLocked runs a statement that locks schedules and returns lockedColumns.
func selectLocked(ctx context.Context, tx *sqlrun.Session, stmt *sqlrun.Stmt, args sqlrun.Args) ([]candidate, error) {
	var unread []int64
	locked, err := sqlrun.Select(ctx, tx, stmt, args, func(rows *sql.Rows) (candidate, error) {
		c, ok, err := scanCandidate(rows)
		if !ok {
			unread = append(unread, c.ID)
		}
		return c, err
	})
	for part := range slices.Chunk(unread, batch) {
		if err == nil {
			err = readSettings(ctx, tx, locked, part)
		}
	}
	return locked, err
}

// scanCandidate reads lockedColumns. It is not ok if the settings must be read column by column.
func scanCandidate(rows *sql.Rows) (c candidate, ok bool, err error) {
	var due, next, now int64
	var text sql.NullString // NULL if it is longer than MySQL's max_allowed_packet
	err = rows.Scan(append(c.stateFields(&due), &next, &c.fence, &c.lane, &now, &text)...)
	if err != nil {
		return c, false, err
	}
	c.Due, c.nextExec, c.now = instantOf(due), instantOf(next), instantOf(now)
	if !text.Valid {
		return c, false, nil
	}
	settings := known.get(text.String)
	if settings == nil {
		return c, false, nil
	}
	c.use(settings)
	return c, true, nil
}

// use gives a candidate its settings.
func (c *candidate) use(settings *knownSettings) {
	is := &c.Schedule
	id, name, source, key, state, reason, due, failures := is.ID, is.Name, is.Source, is.Key, is.State, is.Reason, is.Due, is.Failures
	c.Schedule, c.bad, c.sound = settings.Schedule, settings.bad, settings.sound
	is.ID, is.Name, is.Source, is.Key, is.State, is.Reason, is.Due, is.Failures = id, name, source, key, state, reason, due, failures
}

// readSettings reads the settings of some locked schedules column by column. Nobody changes them
// meanwhile, because this transaction has the locks.
func readSettings(ctx context.Context, tx *sqlrun.Session, locked []candidate, ids []int64) error {
	type row struct {
		Schedule
		bad error
	}
	found, err := sqlrun.Select(ctx, tx, settingsOf, sqlrun.Args{"ids": ids}, func(rows *sql.Rows) (r row, err error) {
		r.bad, err = r.scan(rows)
		return r, err
	})
	if err == nil && len(found) != len(ids) {
		err = fmt.Errorf("%d of %d locked schedules were found", len(found), len(ids))
	}
	for _, r := range found {
		i := slices.IndexFunc(locked, func(c candidate) bool { return c.ID == r.ID })
		locked[i].Schedule, locked[i].bad = r.Schedule, r.bad
	}
	return err
}
