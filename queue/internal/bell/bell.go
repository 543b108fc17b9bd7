// Package bell tells workers that there is something to look at: new jobs, or changed settings.
// Workers of this process hear it at once; those of other processes hear it by a notification
// where the engine has them, or else by their doorbells. A lost bell costs time and nothing
// else, since workers also poll.
package bell

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Messages, apart from those about blocks with new jobs: see [Blocks].
const (
	Share = "share" // settings or limits have changed, or there are blocks to share
	Ping  = "ping"  // no content: it only proves that the listener hears

	// Ended begins the message that the last jobs of some groups may have ended: a list of ids,
	// or nothing for any group.
	Ended = "ended:"
)

// longestList is the maximum length of a list of groups in bytes, so that it fits a datagram.
const longestList = 1000

// Channel is the notification channel of the processes of a database and prefix.
func Channel(db *dialect.DB) string { return db.Name() + "queue" }

// Blocks is the message that some blocks of a queue have new jobs.
func Blocks(queue int, blocks map[int]bool) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d:", queue)
	if len(blocks) <= 100 { // for more, the message means all blocks
		for divided := range blocks {
			fmt.Fprintf(&text, "%d,", divided)
		}
	}
	text.WriteByte(';')
	return text.String()
}

// From is the message that jobs of a queue were committed late: from an id on. Versions that do not
// know it ignore it.
func From(queue int, id int64) string { return fmt.Sprintf("%d:%s%d;", queue, from, id) }

// FromID returns the id in the list of a message made by [From].
func FromID(list string) (id int64, ok bool) {
	text, ok := strings.CutPrefix(list, from)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil
}

const from = "@"

// Groups is the message that some groups may be able to end.
func Groups(ids []int64) string {
	text := Ended
	for _, id := range ids {
		if text += strconv.FormatInt(id, 10) + ","; len(text) > longestList {
			return Ended
		}
	}
	return text
}

// GroupIDs returns the groups in a message made by [Groups]; none means any group.
func GroupIDs(payload string) (ids []int64) {
	for part := range strings.SplitSeq(strings.TrimPrefix(payload, Ended), ",") {
		if id, err := strconv.ParseInt(part, 10, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// A Hub connects the users of one [dialect.DB] in this process.
type Hub struct {
	mu   sync.Mutex
	ears []func(payload string) bool // each returns false once its owner is gone

	changed atomic.Int64 // instant of the last change of settings
	ringer  Ringer

	Ends Ends // of jobs, for those who wait for them
}

var hubs sync.Map // by the weak pointer to its DB

// Of returns the hub of a database. It lives as long as the database does. Without a database,
// as in tests of handlers, each caller gets a hub of its own.
func Of(db *dialect.DB) *Hub {
	if db == nil {
		return &Hub{}
	}
	key := weak.Make(db)
	h, had := hubs.LoadOrStore(key, &Hub{})
	if !had {
		runtime.AddCleanup(db, func(key weak.Pointer[dialect.DB]) { hubs.Delete(key) }, key)
	}
	return h.(*Hub)
}

// Listen has hear called with the messages of this process, until hear reports that its owner
// no longer exists. An empty payload only asks for that.
func (h *Hub) Listen(hear func(payload string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ears = append(slices.DeleteFunc(slices.Clone(h.ears), func(hear func(string) bool) bool { return !hear("") }), hear)
}

// tellHere tells the listeners in this process. That a group may have ended is told to one of
// them only.
func (h *Hub) tellHere(payload string) (heard bool) {
	h.mu.Lock()
	ears := h.ears
	h.mu.Unlock()
	for _, hear := range ears {
		if hear(payload) {
			if heard = true; strings.HasPrefix(payload, Ended) {
				break
			}
		}
	}
	return heard
}

// Change records that settings have changed: this process then reads again what it knows of
// them.
func (h *Hub) Change() { h.changed.Store(int64(instant.Now())) }

// Knows reports whether something read at an instant is newer than the last change of settings
// made in this process.
func (h *Hub) Knows(read instant.Instant) bool { return int64(read) > h.changed.Load() }

// Tell tells the workers of this and other processes, by queue; queue 0 stands for all. It
// waits until others have been told, for at most five seconds. Other processes do not hear of
// groups that a client of this process ends.
func (h *Hub) Tell(ctx context.Context, db *dialect.DB, payloads map[int]string) {
	for _, payload := range payloads {
		if h.tellHere(payload) && strings.HasPrefix(payload, Ended) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if db.Dialect.Notify == nil {
		_ = h.ringer.Ring(ctx, db, payloads) // if it is lost, others find out by polling
		return
	}
	_ = Notify(ctx, db, payloads)
}

// Notify sends a notification, if the engine has them.
func Notify(ctx context.Context, db *dialect.DB, payloads map[int]string) error {
	all := ""
	for _, payload := range payloads {
		all += payload
	}
	_, err := sqlrun.Select(ctx, &db.Session, store.Tell, sqlrun.Args{"channel": Channel(db), "payload": all}, store.SkipRow)
	return err
}

// NotifyWorkers sends notifications, by queue, to those that have workers, and returns these.
func NotifyWorkers(ctx context.Context, db *dialect.DB, payloads map[int]string) (told []int, err error) {
	var rows []sqlrun.Args
	for queue, payload := range payloads {
		rows = append(rows, sqlrun.Args{"queue": queue, "payload": payload})
	}
	return sqlrun.Select(ctx, &db.Session, store.TellWorkers, sqlrun.Args{"channel": Channel(db), "rows": rows},
		func(row *sql.Rows) (queue int, err error) {
			err = row.Scan(new(any), &queue)
			return queue, err
		})
}
