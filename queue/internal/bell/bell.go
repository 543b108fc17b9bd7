// Package bell tells workers that there is something to look at: new jobs, or settings that have
// changed. Those of this process hear it at once; those of others by a notification where the
// engine has such a thing, or else by their doorbells. A bell that is not heard costs time and
// nothing else, since workers look by themselves, too.
package bell

import (
	"context"
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

// What is told, but for which blocks have new jobs: see [Blocks].
const (
	Share = "share" // settings or limits have changed, or there are blocks to share
	Ping  = "ping"  // nothing: whoever listens hears something

	// Ended begins what is told of groups whose last job may have ended: a list of ids, or
	// nothing for any group.
	Ended = "ended:"
)

// longestList is how many bytes a list of groups has at the most, so that it fits a datagram.
const longestList = 1000

// Channel is where the processes of a database and prefix notify each other.
func Channel(db *dialect.DB) string { return db.Prefix() + "queue" }

// Blocks tells that some blocks of a queue have new jobs.
func Blocks(queue int, blocks map[int]bool) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d:", queue)
	if len(blocks) <= 100 { // else all
		for divided := range blocks {
			fmt.Fprintf(&text, "%d,", divided)
		}
	}
	text.WriteByte(';')
	return text.String()
}

// Groups tells that some groups may have come to their end.
func Groups(ids []int64) string {
	text := Ended
	for _, id := range ids {
		if text += strconv.FormatInt(id, 10) + ","; len(text) > longestList {
			return Ended
		}
	}
	return text
}

// GroupIDs returns the groups that a payload of [Groups] is about; none: any may have ended.
func GroupIDs(payload string) (ids []int64) {
	for part := range strings.SplitSeq(strings.TrimPrefix(payload, Ended), ",") {
		if id, err := strconv.ParseInt(part, 10, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// A Hub is what those who use one [dialect.DB] in this process tell each other.
type Hub struct {
	mu   sync.Mutex
	ears []func(payload string) bool // each reports whether it still exists

	changed atomic.Int64 // the instant of the last change of settings
	ringer  Ringer
}

var hubs sync.Map // by the weak pointer to its DB

// Of returns the hub of a database. It lives as long as that does. Without a database, as in tests
// of handlers, nobody shares it.
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

// Listen has hear called with what is told here, until it reports that whoever hears it does not
// exist any more. An empty payload only asks for that.
func (h *Hub) Listen(hear func(payload string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ears = append(slices.DeleteFunc(slices.Clone(h.ears), func(hear func(string) bool) bool { return !hear("") }), hear)
}

// tellHere tells those of this process. Only one of them has to know that a group may have ended.
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

// Change notes that settings have changed: what this process knows of them is read again.
func (h *Hub) Change() { h.changed.Store(int64(instant.Now())) }

// Knows tells whether what was read at a moment is not older than the last change that was made
// in this process.
func (h *Hub) Knows(read instant.Instant) bool { return int64(read) > h.changed.Load() }

// Tell tells the workers of this process and of others, by queue; those of queue 0 are all. It
// waits until others have been told, for five seconds at the most. Others do not hear of groups that
// a client of this process ends.
func (h *Hub) Tell(ctx context.Context, db *dialect.DB, payloads map[int]string) {
	for _, payload := range payloads {
		if h.tellHere(payload) && strings.HasPrefix(payload, Ended) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if db.Dialect.Notify == nil {
		_ = h.ringer.Ring(ctx, db, payloads) // unheard, others look by themselves
		return
	}
	_ = Notify(ctx, db, payloads)
}

// Notify sends a notification, on an engine that has such a thing.
func Notify(ctx context.Context, db *dialect.DB, payloads map[int]string) error {
	all := ""
	for _, payload := range payloads {
		all += payload
	}
	_, err := sqlrun.Select(ctx, &db.Session, store.Tell, sqlrun.Args{"channel": Channel(db), "payload": all}, store.SkipRow)
	return err
}
