package queue

import "context"

// A turn lets one goroutine at a time write what a worker has gathered, or draw for it. Whoever comes while somebody else writes
// waits: what was taken out to be written is neither gathered nor in the table until that has ended. Without it the last round
// of a worker that stops would find nothing, and the stop would then cancel the round before, with all that it had taken.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn. end gives it to the next one.
func (t turn) take(ctx context.Context) (end func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// signal wakes a goroutine. If it is busy, several signals count as one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
