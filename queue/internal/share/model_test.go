package share

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

const (
	every  = 500 * time.Millisecond
	vacant = 3 * every
	keep   = 10 * every
)

// A member is a worker of the model: what it remembers from one round to the next.
type member struct {
	Worker
	dead      bool // and its lease is over
	vacancies Vacancies
	last      []store.BlockRow // what it read in its last round
	kept      map[int]instant.Instant
}

// A deployment has the rows that the members read and write.
type deployment struct {
	members []*member
	blocks  []store.BlockRow
	at      instant.Instant
	turn    int
}

func (m *deployment) workers() (all []Worker) {
	for _, w := range m.members {
		all = append(all, w.Worker)
	}
	return all
}

func (m *deployment) held(w *member) (held []Held) {
	for i, b := range m.blocks {
		if b.State == "LEASED" && b.LockBy == w.Node {
			at, kept := w.kept[i]
			stays := kept && m.at.Sub(at) < keep && !w.Drained && !OthersMove(m.workers(), w.Node)
			held = append(held, Held{Divided: i, Since: b.LockAt, Stays: stays, Beyond: true})
		}
	}
	return held
}

// round is a round of a worker. With late, it goes by what it read in its last round: somebody else has been faster.
func (m *deployment) round(w *member, late bool) {
	rows := slices.Clone(m.blocks)
	if late && w.last != nil {
		rows = w.last
	}
	w.last = slices.Clone(m.blocks)
	all := m.workers()
	var over map[int]bool
	w.vacancies = w.vacancies.Note(rows, m.at)
	if w.Busy == Idle && !w.Drained && !OthersMove(all, w.Node) {
		over = w.vacancies.Over(m.at, vacant)
	}
	if w.Busy == Moving { // it takes all blocks, whatever its share
		for i := range m.blocks {
			if b := &m.blocks[i]; b.Free() {
				b.State, b.LockBy, b.Live, b.Fence = "LEASED", w.Node, true, b.Fence+1
			}
		}
		return
	}
	for _, p := range Parts(all, rows) {
		n := p.Target(w.Node, m.turn)
		gone, stay := p.GiveUp(m.held(w), n)
		for _, divided := range gone {
			m.blocks[divided].State, m.blocks[divided].LockBy = "FREE", ""
		}
		a := Allotment{Free: Free(p.Rows), Vacant: over, Lacks: n - stay}
		for {
			picked := a.Next()
			if len(picked) == 0 {
				break
			}
			for _, r := range picked {
				b := &m.blocks[r.Divided]
				if b.Fence != r.Fence || !b.Free() { // the guarded statement
					continue
				}
				b.State, b.LockBy, b.Live, b.LockAt = "LEASED", w.Node, true, int64(m.at)
				b.Fence++
				if delete(w.kept, r.Divided); a.Took() {
					w.kept[r.Divided] = m.at
				}
			}
		}
	}
}

// rounds lets everybody have some rounds.
func (m *deployment) rounds(n int) {
	for range n {
		m.at = m.at.Add(every)
		for _, w := range m.members {
			if !w.dead {
				m.round(w, false)
			}
		}
	}
}

// Whatever has happened to the workers of a queue, once nothing happens any more each block has a worker that may have it, and
// each worker as many as are its own.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &deployment{at: 1}
		for i := range rapid.IntRange(1, 12).Draw(t, "blocks") {
			m.blocks = append(m.blocks, store.BlockRow{Divided: i, LeaseRow: store.LeaseRow{State: "FREE"}})
		}
		pick := func(t *rapid.T) *member {
			if len(m.members) == 0 {
				t.Skip("nobody")
			}
			return rapid.SampledFrom(m.members).Draw(t, "worker")
		}
		born := 0
		join := func(kinds []string) {
			born++
			w := &member{Worker: Worker{Node: fmt.Sprintf("w%02d", born), InTime: true}, kept: map[int]instant.Instant{}}
			if kinds != nil {
				w.Kinds = NewKindSet(kinds)
				w.Says = w.Kinds.Text
			}
			m.members = append(m.members, w)
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				if len(m.members) > 6 {
					t.Skip("enough")
				}
				join(rapid.SampledFrom([][]string{nil, nil, {"a"}, {"a", "b"}, {"b"}}).Draw(t, "kinds"))
			},
			"die": func(t *rapid.T) {
				w := pick(t)
				w.dead, w.InTime = true, false
			},
			"expel": func(t *rapid.T) {
				w := pick(t)
				if !w.dead {
					t.Skip("it lives")
				}
				for i := range m.blocks {
					if m.blocks[i].LockBy == w.Node {
						m.blocks[i].Live = false
					}
				}
				m.members = slices.DeleteFunc(m.members, func(o *member) bool { return o == w })
			},
			"drain":   func(t *rapid.T) { w := pick(t); w.Drained = !w.Drained },
			"busy":    func(t *rapid.T) { pick(t).Busy = rapid.SampledFrom([]int{Idle, Busy, Starved}).Draw(t, "busy") },
			"turn":    func(*rapid.T) { m.turn++ },
			"forKind": func(t *rapid.T) { m.blocks[rapid.IntRange(0, len(m.blocks)-1).Draw(t, "block")].ForKind = "a" },
			"move": func(t *rapid.T) {
				w := pick(t)
				if OthersMove(m.workers(), w.Node) {
					t.Skip("somebody moves jobs")
				}
				w.Busy = Moving
			},
			"round": func(t *rapid.T) {
				if w := pick(t); !w.dead {
					m.at = m.at.Add(every)
					m.round(w, rapid.Bool().Draw(t, "late"))
				}
			},
			"": func(*rapid.T) {},
		})
		for i := range m.blocks { // the dead are expelled
			if w := m.member(m.blocks[i].LockBy); w == nil || w.dead {
				m.blocks[i].Live = false
			}
		}
		m.rounds(2 * (len(m.blocks) + 5))
		m.check(t)
	})
}

func (m *deployment) member(name string) *member {
	for _, w := range m.members {
		if w.Node == name {
			return w
		}
	}
	return nil
}

// check looks at what everybody has when nothing happens any more.
func (m *deployment) check(t *rapid.T) {
	all := m.workers()
	for _, w := range m.members {
		want, has := 0, len(m.held(w))
		for _, p := range Parts(all, m.blocks) {
			want += p.Target(w.Node, m.turn)
		}
		if w.Busy == Moving {
			want = len(m.blocks)
		}
		if !w.dead && has != want {
			t.Errorf("%s has %d blocks, and %d are its share", w.Node, has, want)
		}
		if (w.Drained && w.Busy != Moving || OthersMove(all, w.Node)) && !w.dead && has > 0 {
			t.Errorf("%s has %d blocks, and may have none", w.Node, has)
		}
	}
	idle := func(w *member) bool { return w.works() && w.Busy == Idle }
	if slices.ContainsFunc(m.members, idle) && !slices.ContainsFunc(m.members, func(w *member) bool { return w.Kinds != nil || w.Busy == Moving }) {
		for _, w := range m.members {
			if has := len(m.held(w)); !w.dead && w.Busy != Idle && has > 0 {
				t.Errorf("%s is busy and has %d blocks, and others are not busy", w.Node, has)
			}
		}
	}
	works := func(w *member) bool { return w.works() && !w.dead }
	for _, b := range m.blocks {
		if b.Free() && slices.ContainsFunc(m.members, works) {
			t.Errorf("nobody has block %d", b.Divided)
		}
		able := func(w *member) bool { return works(w) && w.Kinds.Takes(b.ForKind) }
		by := m.member(b.LockBy)
		if b.ForKind != "" && !b.Free() && by != nil && !by.Kinds.Takes(b.ForKind) && by.Busy != Moving && slices.ContainsFunc(m.members, able) {
			t.Errorf("%s has block %d, whose jobs another worker handles", by.Node, b.Divided)
		}
	}
}

// What stays is not given up, whatever the share; quiet blocks go first, then those that a worker has had longest.
func TestGiveUp(t *testing.T) {
	p := &Part{}
	gone, stay := p.GiveUp([]Held{{Divided: 0, Stays: true}, {Divided: 1, Active: 1}, {Divided: 2, Since: 5}, {Divided: 3, Since: 4}}, 2)
	if want := []int{3, 2}; !slices.Equal(gone, want) || stay != 2 {
		t.Errorf("it gives up %v and %d stay", gone, stay)
	}
	if gone, stay = p.GiveUp([]Held{{Stays: true}, {Divided: 1, Stays: true}}, 0); len(gone) > 0 || stay != 2 {
		t.Errorf("it gives up %v and %d stay", gone, stay)
	}
}

// A block that somebody has had meanwhile is free for the first time.
func TestVacancyBegins(t *testing.T) {
	row := store.BlockRow{LeaseRow: store.LeaseRow{State: "FREE", Fence: 1}}
	v := Vacancies{}.Note([]store.BlockRow{row}, 1)
	row.Fence++
	at := instant.Instant(1).Add(vacant)
	if v = v.Note([]store.BlockRow{row}, at); v.Over(at, vacant)[0] {
		t.Error("it counts as free since it was free before")
	}
	if later := at.Add(vacant); !v.Note([]store.BlockRow{row}, later).Over(later, vacant)[0] {
		t.Error("it is never free for long")
	}
}

// The workers with one block more take turns: in as many turns as there are workers, each has had it.
func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, blocks := rapid.IntRange(2, 7).Draw(t, "workers"), rapid.IntRange(1, 20).Draw(t, "blocks")
		var all []Worker
		for i := range n {
			all = append(all, Worker{Node: fmt.Sprint(i), InTime: true})
		}
		most := make([]bool, n)
		for turn := range n {
			sum := 0
			for i, w := range all {
				has := Target(all, w.Node, blocks, turn)
				if has < blocks/n || has > blocks/n+1 {
					t.Fatalf("%d of %d blocks are the share of one of %d workers", has, blocks, n)
				}
				sum += has
				most[i] = most[i] || has > blocks/n
			}
			if sum != blocks {
				t.Fatalf("the shares of %d blocks are %d together", blocks, sum)
			}
		}
		if blocks%n != 0 && slices.Contains(most, false) {
			t.Fatalf("who had one block more: %v", most)
		}
	})
}

// A block of another worker's share is not left lying if that worker does not take it. Whoever takes it keeps it for a while.
func TestVacant(t *testing.T) {
	m := &deployment{at: 1, blocks: make([]store.BlockRow, 4)}
	for i := range m.blocks {
		m.blocks[i] = store.BlockRow{Divided: i, LeaseRow: store.LeaseRow{State: "FREE"}}
	}
	w := &member{Worker: Worker{Node: "a", InTime: true}, kept: map[int]instant.Instant{}}
	m.members = []*member{w, {Worker: Worker{Node: "b", InTime: true}, dead: true}}
	m.rounds(1)
	if has := len(m.held(w)); has != 2 {
		t.Errorf("it has %d blocks at once, and its share is 2", has)
	}
	m.rounds(int(vacant / every))
	for range 8 {
		if has := len(m.held(w)); has != 4 {
			t.Errorf("it has %d blocks, and nobody else takes the other 2", has)
		}
		m.rounds(1)
	}
}
