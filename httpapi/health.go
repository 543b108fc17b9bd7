package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// Health answers probes: /livez reports that the process answers at all, and /readyz whether it can do
// its work. It needs no token, and reveals nothing else.
type Health struct {
	DB *dialect.DB

	// Stopping is closed when the daemon begins to stop. It is no longer ready then.
	Stopping <-chan struct{}

	// Aside says what strangers may know of trouble beside the work, or returns "". The daemon is ready nevertheless.
	Aside func() string

	// Metrics answers /metrics; nil means that there are none.
	Metrics http.Handler
}

// ServeHTTP answers a probe.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" && h.Metrics != nil && meantForHere(r) {
		h.Metrics.ServeHTTP(w, r)
		return
	}
	status, text := http.StatusOK, "ok\n"
	switch {
	case r.URL.Path == "/metrics" && h.Metrics != nil:
		status, text = http.StatusForbidden, "at a loopback address /metrics answers for localhost, a loopback address, or the name of this host\n"
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		status, text = http.StatusMethodNotAllowed, "GET or HEAD\n"
	case r.URL.Path == "/livez":
	case r.URL.Path != "/readyz":
		status, text = http.StatusNotFound, "there are /livez and /readyz\n"
	default:
		if why := h.notReady(r.Context()); why != "" {
			status, text = http.StatusServiceUnavailable, why+"\n"
		}
		if h.Aside != nil {
			if aside := h.Aside(); aside != "" {
				text += aside + "\n"
			}
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client is gone
}

// meantForHere reports whether a request to a loopback address names this host. Otherwise a web page
// that gives this host its own name could read the metrics. /livez and /readyz reveal nothing, and some
// probes name no host. At other addresses, anyone who can connect may ask, under any name.
func meantForHere(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !isLoopback(local.String()) || isLoopback(r.Host) || isLocalhost(r.Host) {
		return true
	}
	own, err := os.Hostname() // which may resolve to a loopback address
	return err == nil && strings.EqualFold(own, withoutPort(r.Host))
}

func (h *Health) notReady(ctx context.Context) string {
	select {
	case <-h.Stopping:
		return "stopping"
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch why, err := h.DB.WhyReadOnly(ctx); {
	case errors.Is(err, dialect.ErrReadOnly):
		return "the database takes no writes: no server of its URL does"
	case err != nil:
		return "the database does not answer"
	case why != "":
		return "the database takes no writes: " + why
	}
	return ""
}
