package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/scheduler"
)

// problemEvery is the time between two looks at what fails in a daemon.
const problemEvery = 5 * time.Second

// logProblem says why nobody gets the log now, or returns "".
func (p *program) logProblem() string {
	if o := p.outlet(); o != nil {
		return o.Problem()
	}
	return ""
}

// certProblem says that the certificate of the API has ended or soon does, or returns "". now is of this host, as clients go by theirs.
func certProblem(server *httpapi.Server, now time.Time) string {
	if server == nil {
		return ""
	}
	return server.Trouble(now)
}

// both joins problems.
func both(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(text string) bool { return text == "" }), "; ")
}

// A certWatch logs what is wrong with the certificate of the API when it begins, and then once a day.
type certWatch struct {
	server *httpapi.Server // may be nil
	told   string
	at     time.Time // when it was told
}

// look says what is wrong with the certificate at a time of this host.
func (w *certWatch) look(now time.Time, log *slog.Logger) string {
	text := certProblem(w.server, now)
	if text != "" && (text != w.told || now.Sub(w.at) >= 24*time.Hour) {
		log.Warn("http: "+text, "file", w.server.Cert)
		w.at = now
	}
	w.told = text
	return text
}

// noteProblems records for dbcron doctor what fails in this process, until ctx ends, and logs what is wrong with the API's certificate.
// While all is well it writes nothing.
func (p *program) noteProblems(ctx context.Context, db *dialect.DB, node string, server *httpapi.Server, log *slog.Logger) {
	noted, cert := "", certWatch{server: server}
	cert.look(hostNow(), log)
	for range pace.Ticks(ctx, problemEvery) {
		text := both(p.logProblem(), cert.look(hostNow(), log), trouble.Lasting())
		if text == noted {
			continue
		}
		trying, cancel := context.WithTimeout(ctx, problemEvery)
		there, err := scheduler.NoteProblem(trying, db, node, text)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			log.Debug("what fails here cannot be recorded for doctor", "err", err)
		case there:
			noted = text
		}
	}
}
