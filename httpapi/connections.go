package httpapi

import (
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// An open connection costs a descriptor of the process, and needs no token. Without a limit, strangers' idle connections would
// take those that the database's pool, commands and files need.

const (
	fewestConnections = 32
	maxConnections    = 10_000

	tellEvery = time.Minute // between two lines of the log about closed connections
)

// usualConnections is the limit of a server that has none of its own: half of the process's descriptors.
func usualConnections() int { return min(max(fewestConnections, descriptors()/2), maxConnections) }

// connections limits the connections of a server. When there are too many, it closes the one that has been without a request for
// longest, or the new one if all have one. It is safe for concurrent use.
type connections struct {
	limit  int
	log    *slog.Logger
	closed func() // is called for each that it closes

	mu   sync.Mutex
	open map[net.Conn]*list.Element // the element in idle; nil: it has a request
	idle *list.List                 // of net.Conn, the longest first
	told instant.Instant
	more int64 // closed since then
}

func newConnections(limit int, log *slog.Logger, closed func()) *connections {
	if limit <= 0 {
		limit = usualConnections()
	}
	if closed == nil {
		closed = func() {}
	}
	return &connections{limit: limit, log: log, closed: closed, open: map[net.Conn]*list.Element{}, idle: list.New()}
}

// changed is the server's ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if victim := c.note(conn, state); victim != nil {
		go victim.Close() // TLS says goodbye, which may take seconds
	}
}

// note updates the state of a connection and returns one to close, if there are too many.
func (c *connections) note(conn net.Conn, state http.ConnState) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.open[conn]
	if !known && state != http.StateNew { // it is one that was closed
		return nil
	}
	if at != nil {
		c.idle.Remove(at)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		c.open[conn] = c.idle.PushBack(conn)
	case http.StateActive:
		c.open[conn] = nil
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
	if len(c.open) <= c.limit {
		return nil
	}
	victim = c.idle.Front().Value.(net.Conn) // at least the new one is there
	c.idle.Remove(c.open[victim])
	delete(c.open, victim)
	c.tell()
	return victim
}

// tell counts a closed connection, and logs the number now and then. mu is held.
func (c *connections) tell() {
	c.closed()
	c.more++
	if now := instant.Now(); c.told == 0 || now.Sub(c.told) >= tellEvery {
		c.log.Warn("http: there are too many connections; those without a request for longest were closed", "closed", c.more, "limit", c.limit)
		c.told, c.more = now, 0
	}
}
