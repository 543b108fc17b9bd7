package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Check looks whether two held a lock at a time, whether fences rose, and whether the registers have a
// history that guarded transactions can have.
func (l *lockWork) Check(w *World) error {
	for _, name := range slices.Sorted(maps.Keys(l.beliefs)) {
		l.checkBeliefs(w, name)
		l.checkFences(w, name)
	}
	for _, name := range slices.Sorted(maps.Keys(l.writes)) {
		l.checkRegister(w, name)
	}
	var takeovers int
	err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT COALESCE(SUM(takeovers), 0) FROM dbcron_lock`).Scan(&takeovers)
	if takeovers > 0 {
		w.count("a lock is taken over")
	}
	return err
}

// checkBeliefs looks for a moment at which more processes took themselves for holders than may be. If the
// server's clock was set, that may be.
func (l *lockWork) checkBeliefs(w *World, name string) {
	if w.Stepped() {
		return
	}
	bySlot := map[int][]*belief{}
	for _, b := range l.beliefs[name] {
		if b.to.IsZero() {
			b.to = time.Now() //nolint:forbidigo // virtual
		}
		bySlot[b.slot] = append(bySlot[b.slot], b)
	}
	for slot, all := range bySlot {
		if slot > poolSize {
			w.Violate("limit", []string{name}, "there is a slot %d of %d of %s", slot, poolSize, name)
		}
		slices.SortStableFunc(all, func(a, b *belief) int { return a.from.Compare(b.from) })
		for i, a := range all {
			if held := a.to.Sub(a.from); l.opt.MaxHold > 0 && held > l.opt.MaxHold {
				w.Violate("max hold", []string{name}, "%s held %s for %v, with fence %d", a.who, name, held, a.fence)
			}
			if i == 0 {
				continue
			}
			if o := all[i-1]; o.released && name != simLeader && a.from.Sub(o.asked) < l.opt.MinHold { // a leader's lease began before
				w.Violate("min hold", []string{name}, "%s got %s with fence %d, %v after %s had asked for it", a.who, name, a.fence, a.from.Sub(o.asked), o.who)
			}
		}
		for i := 1; i < len(all); i++ {
			if a, b := all[i-1], all[i]; b.from.Before(a.to) {
				w.Violate("two holders", []string{name}, "%s (fence %d) and %s (fence %d) held %s at a time, for %v",
					a.who, a.fence, b.who, b.fence, name, a.to.Sub(b.from))
			}
		}
	}
}

// checkFences looks for leases that were asked for after another one was granted, and whose fence is not
// greater. It names one such other for each.
func (l *lockWork) checkFences(w *World, name string) {
	for _, b := range l.beliefs[name] {
		var most *belief // of those that were granted before
		for _, a := range l.beliefs[name] {
			if a.slot == b.slot && b.asked.After(a.from) && (most == nil || a.fence > most.fence) {
				most = a
			}
		}
		if most != nil && b.fence <= most.fence {
			w.Violate("fence", []string{name}, "%s got the fence %d of %s after %s had got %d", b.who, b.fence, name, most.who, most.fence)
		}
	}
}

// A register is the state of one, and the highest fence that has written it.
type register struct {
	fence int64
	value string
}

// registerModel says what guarded transactions may read, and which may be committed.
var registerModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, output any) []any {
		s, in, out := state.(register), input.(*write), output.(fate)
		legal := in.fence >= s.fence && in.read == s.value
		after := register{in.fence, in.wrote}
		switch {
		case out == confirmed && legal:
			return []any{after}
		case out == unknown && legal:
			return []any{s, after}
		case out == unknown:
			return []any{s}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}

// checkRegister has porcupine judge a register. Transactions that were not committed are left out. A
// transaction with an unknown outcome has ended when its process was told so: its connection is cut then.
func (l *lockWork) checkRegister(w *World, name string) {
	var history []porcupine.Operation
	clients := map[string]int{}
	for _, wr := range l.writes[name] {
		if wr.outcome == refused {
			continue
		}
		if _, had := clients[wr.who]; !had {
			clients[wr.who] = len(clients)
		}
		if wr.to.IsZero() {
			wr.to = time.Now() //nolint:forbidigo // virtual
		}
		history = append(history, porcupine.Operation{
			ClientId: clients[wr.who], Input: wr, Call: wr.from.UnixNano(), Output: wr.outcome, Return: wr.to.UnixNano(),
		})
	}
	slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	if len(history) == 0 || porcupine.CheckOperations(registerModel.ToModel(), history) {
		return
	}
	text := ""
	for _, op := range history {
		wr := op.Input.(*write)
		text += fmt.Sprintf("\n    %v to %v %s, fence %d: read %q, wrote %q, %s", wr.from.Sub(w.history.began), wr.to.Sub(w.history.began), wr.who,
			wr.fence, wr.read, wr.wrote, [...]string{"unknown", "committed", "refused"}[wr.outcome])
	}
	w.Violate("register", []string{name}, "the register of %s cannot have this history:%s", name, text)
}
