package store

import (
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Rates of limits.
var (
	// LockLimit has others who draw wait: what is computed of the row is written before they
	// read it. The time is the one when it was asked for, and what was drawn while it was waited
	// for may be later.
	LockLimit = sqlrun.SQL("queue.lock-limit", `
		SELECT {us {now}}, COALESCE({us drawn_at}, 0), COALESCE(rate, 0), rate_per, burst FROM {prefix}queue_limit WHERE queue_id = :queue AND kind = :kind {locked}`)

	// SetDrawn runs with the row locked.
	SetDrawn = sqlrun.SQL("queue.set-drawn",
		`UPDATE {prefix}queue_limit SET drawn_at = {time :drawn} WHERE queue_id = :queue AND kind = :kind`)
)

const (
	// DrawFor is for how long ahead workers draw, how long they keep what they do not use,
	// and the burst that there is at least.
	DrawFor = 100 * time.Millisecond
)

// Cost is how much of the time n jobs use up, in µs.
func (l *Limit) Cost(n int) int64 {
	per, rate := l.Per.Microseconds(), int64(l.Rate)
	return (int64(n)*per + rate - 1) / rate
}

// Ahead is how many jobs are drawn for ahead.
func (l *Limit) Ahead() int {
	return max(1, int(min(int64(l.Rate)*DrawFor.Microseconds()/l.Per.Microseconds(), MaxRate)))
}

// Draw takes up to want of what a rate has left, where drawn is until when it is used up,
// in µs like now. It returns how many those are, until when it is used up then, and how
// long to wait for one more, in µs.
//
// After a pause there is a burst. What would have come a little too late for that is
// not lost, so that a job that waits for its turn needs not be there to the microsecond.
func (l *Limit) Draw(now, drawn int64, want int) (got int, until, wait int64) {
	burst := max(l.Burst, l.Ahead())
	drawn = max(drawn, now-l.Cost(burst)-min(l.Cost(1)*9/10, DrawFor.Microseconds()))
	if left := now - drawn; left > 0 {
		got = int(min(left*int64(l.Rate)/l.Per.Microseconds(), int64(want), int64(burst)))
	}
	until = drawn + l.Cost(got)
	return got, until, max(0, until+l.Cost(1)-now)
}

// PutBack returns until when a rate is used up if n jobs do not begin that were drawn for,
// where drawn is until when it is used up now, and after was that right after the draw. If a
// full burst has built up since then, nothing is put back: others may have drawn from that
// burst already, and it holds no more.
func (l *Limit) PutBack(now, drawn, after int64, n int) int64 {
	if after < now-l.Cost(max(l.Burst, l.Ahead())) {
		return drawn
	}
	return drawn - l.Cost(n)
}
