package queue

import (
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What a process remembers of its past names: see runner_return.go.

const (
	// maxPast is how many of its past names a process knows, and pastFor for how long it knows
	// which jobs did not end it.
	maxPast = 100
	pastFor = time.Hour
)

// maxCharge and maxCharges bound the length of a charge and of all charges of a job.
const maxCharge, maxCharges = 32, 400

// Bygones are what a process remembers of the time before it lost its lease.
type bygones struct {
	charges []string                        // for its previous names
	proven  map[store.JobID]instant.Instant // jobs that did not end it, and since when that is known
}

// lost records the name under which a worker has lost its lease. mu is held.
func (p *bygones) lost(node string) {
	p.charges = append(p.charges, chargeOf(node))
	p.charges = p.charges[max(0, len(p.charges)-maxPast):]
	for id, at := range p.proven {
		if since(at) > pastFor {
			delete(p.proven, id)
		}
	}
}

// clear records that a job did not end this process. mu is held.
func (p *bygones) clear(d *Delivery) {
	if p.proven == nil {
		p.proven = map[store.JobID]instant.Instant{}
	}
	p.proven[d.at()] = instant.Now()
}

// knows reports whether a process knows that a job did not end it under a previous name. mu is held.
func (p *bygones) knows(id store.JobID, node string) bool {
	_, proven := p.proven[id]
	return proven && slices.Contains(p.charges, chargeOf(node))
}

// mine splits the charges of a job into the number of those against this process, and the others. It
// also reports whether this process knows that the job did not end it. mu is held.
func (p *bygones) mine(id store.JobID, charged string) (n int, others string, proven bool) {
	all := strings.Fields(charged)
	rest := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return slices.Contains(p.charges, c) })
	_, proven = p.proven[id]
	return len(all) - len(rest), strings.Join(rest, " "), proven
}

// chargeOf returns the text for a worker's name in a job's charges: its end, which is random.
func chargeOf(node string) string {
	name := strings.Join(strings.Fields(node[strings.LastIndexByte(node, ':')+1:]), "")
	return name[max(0, len(name)-maxCharge):]
}

// charge adds a worker's loss to a job's charges. If they become too long the first are dropped, and
// can no longer be taken back.
func charge(charged, node string) string {
	all := append(strings.Fields(charged), chargeOf(node))
	for len(strings.Join(all, " ")) > maxCharges {
		all = all[1:]
	}
	return strings.Join(all, " ")
}
