package lock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
)

// What clients do to one lock, and the answers they get.
type (
	call struct {
		name  string
		op    string // try, extend, release, force
		fence int64  // of the lease that it is about
		begun instant.Instant
		ended instant.Instant
	}
	answer struct {
		outcome string // ok, no (held, or lost), unknown
		fence   int64  // granted
	}
)

// A lockState is a possible state of a lock's row: its holder by fence, and the earliest and
// latest end of its lease, since an answer takes time.
type lockState struct {
	fence     int64
	held      bool
	abandoned bool // its holder does not know of it, and will give it back some time
	earliest  instant.Instant
	latest    instant.Instant
	known     instant.Instant // when its holder must take it for lost, having been told no more
}

const (
	historyTTL = 500 * time.Millisecond
	tick       = 2 * time.Millisecond // that engines round to
)

// lockModel says what one lock may answer. An operation whose answer was lost
// may have happened before that or not; and an acquisition of that kind may be
// given back at any later time.
var lockModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(call).name
			byName[name] = append(byName[name], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byName {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{lockState{}} },
	Step: func(state, input, output any) []any {
		s, c, a := state.(lockState), input.(call), output.(answer)
		mayBeFree := !s.held || s.abandoned || c.ended >= s.earliest
		mayBeHeld := s.held && c.begun <= s.latest
		mayBeLost := c.ended >= s.known
		own := s.held && s.fence == c.fence
		granted := lockState{
			fence: s.fence + 1, held: true,
			earliest: c.begun.Add(historyTTL - tick), latest: c.ended.Add(historyTTL + tick),
			known: c.begun.Add(historyTTL - historyTTL/10),
		}
		abandoned := granted
		abandoned.abandoned = true
		extended := s
		extended.earliest = max(s.earliest, granted.earliest)
		extended.latest = max(s.latest, granted.latest)
		freed := lockState{fence: s.fence}
		var next []any
		add := func(legal bool, s lockState) {
			if legal {
				next = append(next, s)
			}
		}
		switch c.op + " " + a.outcome {
		case "try ok":
			add(mayBeFree && a.fence == granted.fence, granted)
		case "try no":
			add(mayBeHeld, s)
		case "try unknown":
			add(true, s)
			add(mayBeFree, abandoned)
		case "extend ok":
			told := extended
			told.known = granted.known
			add(own && c.begun <= s.latest, told)
		case "extend no":
			add(!own || mayBeLost, s)
			add(own && mayBeLost && c.begun <= s.latest, extended) // too late for its holder
		case "release no":
			add(!own || mayBeLost, s)
			add(own && mayBeLost, freed) // late, but still its own
		case "extend unknown":
			add(true, s)
			add(own && c.begun <= s.latest, extended)
		case "release ok":
			add(own && c.begun <= s.latest, freed)
		case "release unknown":
			add(true, s)
			add(own, freed)
		case "force ok":
			add(s.held && s.fence == c.fence, freed)
		case "force no", "force unknown":
			add(true, s)
			add(s.held, freed)
		}
		return next
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string {
		c, a := input.(call), output.(answer)
		return fmt.Sprintf("%s(%d) %s %d", c.op, c.fence, a.outcome, a.fence)
	},
}

// TestHistory has clients take, renew, forget and release locks while connections are cut at
// random and leases are ended by force. It checks whether locks that keep their promises could
// have given these answers.
func TestHistory(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		const clients, names, steps = 12, 4, 45
		var mu sync.Mutex
		var history []porcupine.Operation
		var group sync.WaitGroup
		for id := range clients {
			random := rand.New(rand.NewPCG(uint64(id), rand.Uint64()))
			var dice sync.Mutex
			broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) {
				dice.Lock()
				defer dice.Unlock()
				return random.IntN(25) == 0, random.IntN(2) == 0
			}})
			c := &client{
				l: lockerOn(t, broken, Options{TTL: historyTTL}), random: rand.New(rand.NewPCG(uint64(id), rand.Uint64())),
				admin: lockerOn(t, db, Options{}), held: map[string]*Lease{},
				record: func(in call, out answer) {
					mu.Lock()
					defer mu.Unlock()
					op := porcupine.Operation{ClientId: id, Input: in, Call: int64(in.begun), Output: out, Return: int64(in.ended)}
					history = append(history, op)
				},
			}
			group.Go(func() {
				for range steps {
					c.step(t, fmt.Sprint("n", c.random.IntN(names)))
				}
			})
		}
		group.Wait()
		model := lockModel.ToModel()
		result, info := porcupine.CheckOperationsVerbose(model, history, time.Minute)
		if result != porcupine.Ok {
			t.Errorf("a history of %d operations is %s", len(history), result)
			for _, part := range lockModel.Partition(history) {
				if !porcupine.CheckOperations(model, part) {
					t.Log(described(part))
				}
			}
			if err := porcupine.VisualizePath(model, info, filepath.Join(t.ArtifactDir(), "history.html")); err != nil {
				t.Error(err)
			}
		}
		counts := map[string]int{}
		for _, op := range history {
			counts[op.Input.(call).op+" "+op.Output.(answer).outcome]++
		}
		t.Log(counts)
		for _, outcome := range []string{"try ok", "try no", "extend ok", "release ok", "release no"} {
			if counts[outcome] == 0 {
				t.Errorf("it never came to %q", outcome)
			}
		}
	})
}

// described lists a history in the order of its calls.
func described(history []porcupine.Operation) string {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var out strings.Builder
	for _, op := range history {
		c := op.Input.(call)
		fmt.Fprintf(&out, "%s %2d %9.3f to %9.3f %s\n", c.name, op.ClientId, float64(op.Call-history[0].Call)/1e6,
			float64(int64(c.ended)-history[0].Call)/1e6, lockModel.DescribeOperation(op.Input, op.Output))
	}
	return out.String()
}

// A client takes one step after the other.
type client struct {
	l, admin *Locker
	random   *rand.Rand
	held     map[string]*Lease
	record   func(call, answer)
}

func (c *client) step(t *testing.T, name string) {
	in := call{name: name, begun: instant.Now()}
	var out answer
	le := c.held[name]
	switch dice := c.random.IntN(10); {
	case le == nil && dice == 0:
		in.op = "force"
		was, err := c.admin.ForceRelease(t.Context(), name, 0, "nemesis", "test")
		in.fence = was.Fence
		out.outcome = outcome(err)
		if errors.Is(err, ErrNotFound) || err == nil && was.State != Held && was.State != Expired {
			out.outcome = "no"
		}
	case le == nil:
		in.op = "try"
		got, err := c.l.TryAcquire(t.Context(), name)
		out.outcome = outcome(err)
		if errors.Is(err, ErrLost) { // granted too late, and given back
			out.outcome = "unknown"
		}
		if got != nil {
			out.fence = got.Fence()
			c.held[name] = got
		}
	case dice < 4:
		in.op, in.fence = "extend", le.Fence()
		out.outcome = outcome(le.Extend(t.Context()))
	case dice == 4: // it forgets about it, as one that dies
		delete(c.held, name)
		return
	case dice == 5: // it dawdles
		<-time.After(time.Duration(c.random.IntN(300)) * time.Millisecond)
		return
	default:
		in.op, in.fence = "release", le.Fence()
		out.outcome = outcome(le.Release(t.Context()))
		delete(c.held, name)
	}
	in.ended = instant.Now()
	c.record(in, out)
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, errUnclear):
		return "unknown"
	case errors.Is(err, ErrHeld), errors.Is(err, ErrLost):
		return "no"
	}
	return "unknown"
}

// The model itself refuses what must not be.
func TestHistoryModel(t *testing.T) {
	at := func(n int64, op string, fence int64) porcupine.Operation {
		return porcupine.Operation{
			Input: call{name: "x", op: op, fence: fence, begun: instant.Instant(n), ended: instant.Instant(n + 1)},
			Call:  n, Return: n + 1,
		}
	}
	told := func(op porcupine.Operation, outcome string, fence int64) porcupine.Operation {
		op.Output = answer{outcome, fence}
		return op
	}
	first := told(at(1, "try", 0), "ok", 1)
	for name, bad := range map[string][]porcupine.Operation{
		"two at a time":       {first, told(at(3, "try", 0), "ok", 2)},
		"a fence that stays":  {first, told(at(3, "release", 1), "ok", 0), told(at(5, "try", 0), "ok", 1)},
		"a refusal by nobody": {told(at(1, "try", 0), "no", 0)},
		"a renewal of what is another's": {
			first, told(at(3, "release", 1), "ok", 0), told(at(5, "try", 0), "ok", 2), told(at(7, "extend", 1), "ok", 0),
		},
		"a loss without a reason": {first, told(at(3, "extend", 1), "no", 0)},
	} {
		if porcupine.CheckOperations(lockModel.ToModel(), slices.Clone(bad)) {
			t.Errorf("it takes %s", name)
		}
	}
}
