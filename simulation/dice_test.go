package simulation

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// dice are random numbers that depend on a seed and a name, and on nothing that happens: what is drawn for
// one job is the same whenever it is drawn, and whatever else is drawn.
type dice struct{ *rand.Rand }

func newDice(seed uint64, name ...any) dice {
	h := fnv.New128a() // of both, since PCG's first numbers of similar seeds are similar
	fmt.Fprintln(h, seed)
	fmt.Fprint(h, name...)
	sum := h.Sum(nil)
	return dice{rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:])))}
}

// once reports true once in n times; never if n is 0.
func (d dice) once(n int) bool { return n > 0 && d.IntN(n) == 0 }

// between returns a duration of at least least and less than most, to the nanosecond, so that two things
// rarely happen at the same instant.
func (d dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)))
}

// about returns a duration of the given mean, most of them shorter and a few much longer.
func (d dice) about(mean time.Duration) time.Duration {
	return time.Duration(d.ExpFloat64() * float64(mean))
}

// eitherWay is about, forward or back.
func (d dice) eitherWay(mean time.Duration) time.Duration {
	by := d.about(mean)
	if d.once(2) {
		by = -by
	}
	return by
}

// oneOf returns one of some values.
func oneOf[T any](d dice, values ...T) T { return values[d.IntN(len(values))] }
