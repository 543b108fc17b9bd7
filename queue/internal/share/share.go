// Package share says which blocks of a queue each of its workers has. It has no statement, no goroutine and no clock: in each
// round a worker reads which workers there are and who has which block, and computes from that how many blocks are its own.
//
// Shares are equal; the workers with one block more take turns, so that no block stays forever with the worker that has the
// most. A worker with too many blocks gives up those that it has had longest, and one with too few takes free ones, and after a
// moment also those of another worker's share that nobody has taken. A worker whose handler slots are all taken by long jobs
// counts as busy, and leaves its share to workers that are not busy, if there are any.
//
// All workers compute the same from the same rows, so no worker has to tell another one what to do. Where they have read
// different rows, a guarded statement decides who has a block, and the next round the rest.
package share

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// Rotation is how long a worker has one block more than others, before another one has it.
const Rotation = 10 * time.Second

// How a worker announces itself to the others of a queue.
const (
	Idle    = iota // it has room for jobs
	Busy           // it is busy with long jobs
	Moving         // it moves jobs, and is to have all blocks
	Starved        // its handlers wait for connections: it is busy
)

// A Worker is one of a queue's workers, as its rows show it.
type Worker struct {
	Node   string
	Busy   int  // Idle and so on
	InTime bool // its lease is not over

	Drained bool
	By      string // who has drained it

	Says  string   // the kinds that it handles, as in its row
	Kinds *KindSet // nil: all
}

// Same reports whether two rows say the same.
func (r Worker) Same(o Worker) bool {
	return r.Node == o.Node && r.Busy == o.Busy && r.InTime == o.InTime && r.Drained == o.Drained && r.By == o.By && r.Says == o.Says
}

// works reports whether a worker may have blocks at all.
func (r Worker) works() bool { return r.InTime && !r.Drained }

// OthersMove reports whether somebody else is to have all blocks of a queue, to move jobs.
func OthersMove(all []Worker, name string) bool {
	return slices.ContainsFunc(all, func(r Worker) bool { return r.InTime && r.Busy == Moving && r.Node != name })
}

// IsSurplus reports whether a queue has more workers than blocks, and how many workers it has.
func IsSurplus(all []Worker, blocks int) (workers int, surplus bool) {
	for _, r := range all {
		if r.works() {
			workers++
		}
	}
	return workers, workers > blocks && blocks > 0
}

// Target returns how many of n blocks a worker should have in a turn: none while another one
// moves jobs, and none if it is drained.
func Target(all []Worker, name string, n, turn int) int {
	if OthersMove(all, name) {
		return 0
	}
	all = slices.DeleteFunc(slices.Clone(all), func(r Worker) bool { return !r.works() })
	if slices.ContainsFunc(all, func(r Worker) bool { return r.Busy == Idle }) {
		all = slices.DeleteFunc(all, func(r Worker) bool { return r.Busy != Idle })
	}
	at := slices.IndexFunc(all, func(r Worker) bool { return r.Node == name })
	if at < 0 {
		return 0
	}
	share := n / len(all)
	if (at+turn)%len(all) < n%len(all) {
		share++
	}
	return share
}

// A Part is the set of blocks that some workers share: those that handle the kinds of their rows,
// or all.
type Part struct {
	Rows []store.BlockRow

	workers []Worker
	of      map[int]bool // its blocks; nil: all
	offset  int          // so that different workers have one block more of each part
}

// Has reports whether a block belongs to the part.
func (p *Part) Has(divided int) bool { return p.of == nil || p.of[divided] }

// Target returns how many of the part's blocks a worker should have in a turn.
func (p *Part) Target(name string, turn int) int {
	return Target(p.workers, name, len(p.Rows), turn+p.offset)
}

// Parts divides the blocks of a queue into parts. A block that was left to the handlers of a
// kind belongs to these, while there are any.
func Parts(all []Worker, rows []store.BlockRow) []*Part {
	chosen := func(r store.BlockRow) bool { return r.ForKind != "" }
	picks := func(r Worker) bool { return r.Kinds != nil }
	if !slices.ContainsFunc(rows, chosen) || !slices.ContainsFunc(all, picks) {
		return []*Part{{workers: all, Rows: rows}}
	}
	by, parts := map[string]*Part{}, []*Part(nil)
	for _, r := range rows {
		workers := all
		if r.ForKind != "" {
			workers = handlersOf(r.ForKind, all)
		}
		names := make([]string, len(workers))
		for i := range workers {
			names[i] = workers[i].Node
		}
		key := strings.Join(names, "\n")
		p := by[key]
		if p == nil {
			p = &Part{workers: workers, of: map[int]bool{}, offset: len(parts)}
			by[key], parts = p, append(parts, p)
		}
		p.Rows, p.of[r.Divided] = append(p.Rows, r), true
	}
	return parts
}

// handlersOf returns the workers that handle a kind, with those that move jobs and take all blocks;
// or all workers if none handles it.
func handlersOf(kind string, all []Worker) (some []Worker) {
	found := false
	for _, r := range all {
		does := r.works() && r.Kinds.Takes(kind)
		if does || r.Busy == Moving {
			found = found || does
			some = append(some, r)
		}
	}
	if !found {
		return all
	}
	return some
}

// KindsOfOthers returns the kinds that the other workers of a queue handle, a set for each.
func KindsOfOthers(all []Worker, name string) (others []*KindSet) {
	for _, r := range all {
		if r.works() && r.Node != name && r.Busy != Moving {
			others = append(others, r.Kinds)
		}
	}
	return others
}

// A Held is a block that a worker has.
type Held struct {
	Divided int
	Active  int   // how many of its jobs run
	Since   int64 // when it was taken
	Stays   bool  // it is not given up now
	Beyond  bool  // it stays because nobody else has taken it, and does not count toward the worker's share
}

// GiveUp returns which blocks of a part a worker gives up that should have n of them, quiet ones first, then those that it has
// had longest, and how many of its share stay.
func (p *Part) GiveUp(held []Held, n int) (gone []int, stay int) {
	var mine []Held
	for _, h := range held {
		switch {
		case !p.Has(h.Divided) || h.Stays && h.Beyond:
		case h.Stays:
			stay++
		default:
			mine = append(mine, h)
		}
	}
	slices.SortFunc(mine, func(a, b Held) int { return cmp.Or(cmp.Compare(a.Active, b.Active), cmp.Compare(a.Since, b.Since)) })
	surplus := min(max(0, stay+len(mine)-n), len(mine))
	for _, h := range mine[:surplus] {
		gone = append(gone, h.Divided)
	}
	return gone, stay + len(mine) - surplus
}
