package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Rates. A limit's row says until when its rate has been used up: the generic cell rate
// algorithm (ITU-T I.371), which needs no more than that one instant. Workers draw what
// they need for the next moment at once, so that the row is written some ten times a
// second by each of them and not for each job. A worker draws for jobs that can begin at once
// except for the rate: what it had drawn for jobs that wait for a permit would let all of them
// begin together when the permits come.

const (
	// drawFor is for how long ahead workers draw, how long they keep what they do not use,
	// and the burst that there is at least.
	drawFor = 100 * time.Millisecond

	// drawEvery is how often a worker asks that did not get enough.
	drawEvery = 20 * time.Millisecond
)

// cost is how much of the time n jobs use up, in µs.
func (l *Limit) cost(n int) int64 {
	per, rate := l.Per.Microseconds(), int64(l.Rate)
	return (int64(n)*per + rate - 1) / rate
}

// ahead is how many jobs are drawn for ahead.
func (l *Limit) ahead() int {
	return max(1, int(min(int64(l.Rate)*drawFor.Microseconds()/l.Per.Microseconds(), maxRate)))
}

// draw takes up to want of what a rate has left, where drawn is until when it is used up,
// in µs like now. It returns how many those are, until when it is used up then, and how
// long to wait for one more, in µs.
//
// After a pause there is a burst. What would have come a little too late for that is
// not lost, so that a job that waits for its turn needs not be there to the microsecond.
func (l *Limit) draw(now, drawn int64, want int) (got int, until, wait int64) {
	burst := max(l.Burst, l.ahead())
	drawn = max(drawn, now-l.cost(burst)-min(l.cost(1)*9/10, drawFor.Microseconds()))
	if left := now - drawn; left > 0 {
		got = int(min(left*int64(l.Rate)/l.Per.Microseconds(), int64(want), int64(burst)))
	}
	until = drawn + l.cost(got)
	return got, until, max(0, until+l.cost(1)-now)
}

// putBack returns until when a rate is used up if n jobs do not begin that were drawn for,
// where drawn is until when it is used up now, and after was that right after the draw. If a
// full burst has built up since then, nothing is put back: others may have drawn from that
// burst already, and it holds no more.
func (l *Limit) putBack(now, drawn, after int64, n int) int64 {
	if after < now-l.cost(max(l.Burst, l.ahead())) {
		return drawn
	}
	return drawn - l.cost(n)
}

// drawTokens draws for a limiter. It returns how many jobs may begin for that, and when to
// ask again. A negative number gives back what was drawn and not used.
func (w *Worker) drawTokens(ctx context.Context, g *limiter, want int) (got int, again time.Duration, err error) {
	after := g.drawnTo // which only its keeper changes
	err = w.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var now, drawn int64
		var per string
		l := Limit{Queue: g.q.name, Kind: g.kind}
		args := sqlrun.Args{"queue": g.q.id, "kind": g.kind}
		err := tx.Get(ctx, store.LockLimit, args, &now, &drawn, &l.Rate, &per, &l.Burst)
		if err == nil {
			err = l.parse(per)
		}
		if got, again = want, 0; err != nil || l.Rate == 0 {
			return orGone(err) // there is no such limit any more
		}
		var until int64
		if want > 0 {
			var wait int64
			if got, until, wait = l.draw(now, drawn, want); got < want {
				again = max(time.Duration(wait)*time.Microsecond, drawEvery)
			}
		} else {
			until = l.putBack(now, drawn, g.drawnTo, -want)
		}
		if got == 0 {
			return nil
		}
		after, args["drawn"] = until, until
		_, err = tx.Exec(ctx, store.SetDrawn, args)
		return err
	})
	if err == nil && want > 0 {
		g.drawnTo = after
	}
	return got, again, err
}

// tendRate draws for the jobs that wait at a limiter, and gives back what is not used. It
// returns when to look again; 0: when there is need.
func (w *Worker) tendRate(ctx context.Context, g *limiter) (time.Duration, error) {
	w.mu.Lock()
	at, want := instant.Now(), 0
	waiting, need := g.waiting(), g.ready()
	switch {
	case g.limit.Rate == 0:
		g.tokens = 0
	case g.tokens > 0 && at.Sub(g.drawn) > drawFor:
		want, g.tokens = -g.tokens, 0
	case need > g.tokens && at >= g.askRate:
		want = max(need, min(waiting, g.limit.ahead())) - g.tokens
	}
	wait := max(0, g.askRate.Sub(at))
	if need <= g.tokens || g.limit.Rate == 0 {
		wait = 0
		if g.tokens > 0 {
			wait = drawFor
		}
	}
	w.mu.Unlock()
	if want == 0 {
		return wait, nil
	}
	got, again, err := w.drawTokens(ctx, g, want)
	if err != nil || want < 0 {
		return time.Millisecond, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g.tokens += got
	g.drawn = instant.Now()
	g.askRate = g.drawn.Add(again)
	if got > 0 {
		w.reopen(g, got)
	}
	return again, nil
}

// returnTokens gives back what was drawn and not used, when the worker ends.
func (w *Worker) returnTokens(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, g := range w.limiters() {
		w.mu.Lock()
		n := g.tokens
		g.tokens = 0
		w.mu.Unlock()
		if n == 0 {
			continue
		}
		if _, _, err := w.drawTokens(ctx, g, -n); err != nil {
			w.log.Warn("unused permits of a rate could not be returned; fewer jobs begin for a while", "queue",
				g.q.name, "kind", g.kind, "jobs", n, "err", err)
		}
	}
}

// orGone is nil if a row that was looked for is not there.
func orGone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// ParseRate parses a rate such as 100/s, 5/1m30s or 1/1h: a number of jobs and a period.
func ParseRate(text string) (n int, per time.Duration, err error) {
	number, span, ok := strings.Cut(text, "/")
	n, err = strconv.Atoi(number)
	if !ok || err != nil || strings.HasPrefix(number, "+") {
		return 0, 0, invalid("rate", "%q is not a number of jobs, a slash and a time, such as 100/s or 5/1m30s", text)
	}
	if n < 1 || n > maxRate {
		return 0, 0, invalid("rate", "%d is not 1 to %d jobs", n, maxRate)
	}
	if strings.Trim(span, "smhdw") == "" && span != "" {
		span = "1" + span
	}
	if per, err = duration.Parse(span); err == nil && (per < time.Millisecond || per > maxPer) {
		err = fmt.Errorf("%v is not 1ms to 366 days", per)
	}
	if err != nil {
		return 0, 0, invalid("rate", "%q: %v", text, err)
	}
	return n, per, nil
}

// FormatRate formats a rate as ParseRate parses it.
func FormatRate(n int, per time.Duration) string {
	span := duration.Format(per)
	if len(span) == 2 {
		span = strings.TrimPrefix(span, "1")
	}
	return strconv.Itoa(n) + "/" + span
}
