package store

import (
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Rates of limits.
var (
	// LockLimit makes others who draw from the rate wait: what is computed from the row is
	// written before they read it. The time returned is that of the request; others may have
	// drawn for later times while it waited.
	LockLimit = sqlrun.SQL("queue.lock-limit", `
		SELECT {us {now}}, COALESCE({us drawn_at}, 0), drawn_ahead, COALESCE(rate, 0), rate_per, burst FROM {prefix}queue_limit WHERE queue_id = :queue AND kind = :kind AND tenant = '' {locked}`)

	// SetDrawn runs with the row locked.
	SetDrawn = sqlrun.SQL("queue.set-drawn",
		`UPDATE {prefix}queue_limit SET drawn_at = {time :drawn}, drawn_ahead = :ahead WHERE queue_id = :queue AND kind = :kind AND tenant = ''`)
)

const (
	// DrawFor is how far ahead workers draw, how long they keep what they do not use, and the
	// minimum burst.
	DrawFor = 100 * time.Millisecond

	// MaxCost is the greatest cost of a job.
	MaxCost = 1000

	// lag is how much later than its request others may have drawn for whose end a statement waited.
	lag = time.Second
)

// Cost returns the time that n jobs use up, in µs.
func (l *Limit) Cost(n int) int64 {
	per, rate := l.Per.Microseconds(), int64(l.Rate)
	return (int64(n)*per + rate - 1) / rate
}

// Owed returns until when a rate is used up of which its row says: until drawn, which was in the future for so many
// jobs when it was written.
// Nothing is drawn from a rate that is used up, so what is owed is of a single draw: nobody waits longer than for that
// one at the rate of now,
// whatever the rate was then, or the clock.
func (l *Limit) Owed(now, drawn int64, ahead int) int64 {
	if most := now + l.Cost(min(max(ahead, 0), MaxCost)); drawn > most+lag.Microseconds() {
		return most
	}
	return drawn
}

// AheadOf returns for how many jobs it takes from now until a rate is no longer used up.
func (l *Limit) AheadOf(now, drawn int64) int {
	if drawn >= now+l.Cost(MaxCost) {
		return MaxCost
	}
	per := l.Per.Microseconds()
	return int((max(0, drawn-now)*int64(l.Rate) + per - 1) / per)
}

// Ahead returns the number of jobs to draw for in advance.
func (l *Limit) Ahead() int {
	return max(1, int(min(int64(l.Rate)*DrawFor.Microseconds()/l.Per.Microseconds(), plain.MaxRate)))
}

// Draw takes up to want jobs from a rate that is used up until drawn; times are in µs like now.
// It returns how many it got, until when the rate is used up then, and how long to wait for one
// more. If it gets any, it gets as many as least says: a job that counts for many begins when one might, and the rate makes
// up for the others before the next one does. So they need not be saved up, and nobody who dies takes any along.
//
// After a pause there is a burst. What becomes available a little too late for it is not lost,
// so a waiting job need not draw at the exact microsecond.
func (l *Limit) Draw(now, drawn int64, want, least int) (got int, until, wait int64) {
	burst := max(l.Burst, l.Ahead())
	drawn = max(drawn, now-l.Cost(burst)-min(l.Cost(1)*9/10, DrawFor.Microseconds()))
	if left := now - drawn; left > 0 {
		got = int(min(left*int64(l.Rate)/l.Per.Microseconds(), int64(want), int64(burst)))
	}
	if got > 0 {
		got = max(got, least)
	}
	until = drawn + l.Cost(got)
	return got, until, max(0, until+l.Cost(1)-now)
}

// PutBack returns until when a rate is used up if n jobs do not begin for which it was drawn.
// drawn is until when it is used up now, and after the same right after that draw. If a full
// burst has built up since, nothing is put back: others may have drawn from that burst already,
// and it cannot exceed its maximum.
func (l *Limit) PutBack(now, drawn, after int64, n int) int64 {
	if after < now-l.Cost(max(l.Burst, l.Ahead())) {
		return drawn
	}
	return drawn - l.Cost(n)
}
