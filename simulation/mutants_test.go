package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	flagMutants = flag.Bool("mutants", false, "take mends out of the product, one after the other, and look for violations")
	flagMutant  = flag.String("mutant", "", "only mutants whose name contains this")
	flagWithin  = flag.Int("within", 200, "how many seeds to try for a mutant at the most")
)

// A mutant is a fault that is put into a copy of the product. A simulation must find it.
type mutant struct {
	name     string
	workload string
	file     string // of the module
	from, to string // text that the file has once, and what replaces it
	kind     string // of the violation; or the test that finds it, of the package of the file, where the simulation cannot
	within   int    // so many seeds; 0: a test finds it
}

var mutants = []mutant{
	// Queues: leases.
	{
		"a worker relies on its lease for an hour", "queue", "queue/holder_lease.go",
		"return asked.Add(usable(l.opt.Lease))", "return asked.Add(time.Hour)", "late", 60,
	},
	{
		"late workers are not expelled", "queue", "queue/internal/store/nodes.go",
		"`name = :node AND state = 'live' AND expire_at <= {now}`)", "`name = :node AND state = 'live' AND expire_at <= {now} AND 1 = 0`)", "stuck", 60,
	},
	// It buries a job only if several workers that live have lost it one after the other: no seed of 200 comes to that.
	{
		"a process that lives does not take its charges back", "queue", "queue/runner_return.go",
		"		if n == 0 {\n			continue\n		}\n		clears", "		if n >= 0 {\n			continue\n		}\n		clears", "TestChargeTakenBack", 0,
	},
	// Another job of the tenant, a lost lease or a changed limit has them asked for.
	{
		"jobs at a tenant's limit stay in no demand after a pause", "", "queue/holder_share.go",
		"	b.AskTenants()\n", "", "TestTenantLimitsAfterAWhile", 0,
	},
	// It takes a place that becomes free within a round.
	{
		"a place that becomes free goes to whatever is looked at then", "queue", "queue/runner_adopt.go",
		"full[why] || !run.admits(why)", "!run.admits(why)", "TestAFreedPlaceGoesToTheFirst", 0,
	},
	// A worker loses a block alone only where somebody has changed its row by hand: the lease is one for all.
	{
		"the end of a job that outlived its block is not written again", "queue", "queue/runner_suspect.go",
		"		if d.state.From == tableRunning { // which needs no block", "		if d.state.From == tableRunning && d == nil {", "TestMovesOutliveTheBlock", 0,
	},
	{
		"what a block owes that is lost while it pauses is not written", "progress", "queue/outbox.go",
		"	if len(b.Acks)+len(b.Moves) > 0 {\n		box.remnants[b] = true", "	if len(b.Acks)+len(b.Moves) < 0 {\n		box.remnants[b] = true", "stuck", 200,
	},
	// Queues: notifications.
	{
		"that a queue has no worker is known for an hour", "queue", "queue/notify_bell.go",
		"b.staffed[queue] = staffing{at, ", "b.staffed[queue] = staffing{at.Add(time.Hour), ", "untold", 60,
	},
	{
		"jobs of a queue that had no worker a moment ago are not told", "queue", "queue/notify_bell.go",
		"		if b.quiet(queue) {\n			continue", "		if b.quiet(queue) {\n			delete(b.pending, queue)\n			continue", "untold", 60,
	},
	// Queues: the order of keys.
	{
		"a job does not wait for the one before it of its key", "queue", "queue/internal/block/keyqueue.go",
		"	if len(q.turns) == 0 && q.mayFollow() {", "	if q.mayFollow() { q.turns = nil", "order", 20,
	},
	{
		"a retry does not hold its key", "queue", "queue/runner_retry.go",
		`m.holds = m.verdict != buried && ordered && q.KeyRetry == "hold"`, "m.holds = false", "order", 40,
	},
	{
		"CompleteTx leaves earlier jobs of its key", "queue", "queue/internal/block/owed.go",
		"return o.Line == j.Line && o.Tx != TxCompleted }", "return false }", "order", 200,
	},
	{
		"jobs of a batch by key are checked out one by one", "queue", "queue/runner_complete.go",
		"	for _, m := range ofKey {\n		m.state.Tx = max(m.state.Tx, block.TxPinned)", "	for range ofKey[:1] {\n		d.state.Tx = max(d.state.Tx, block.TxPinned)", "order", 200,
	},
	// SQLite has one writer, so a transaction that is open for long keeps others from enqueueing.
	{
		"an id does not say that one before it is late", "queue", "queue/enqueue_late.go",
		"r.id |= store.Follower", "r.id |= 0", "TestFollowerBehindABacklog", 0,
	},
	// Some jobs of a life have keys from the first second on.
	{
		"blocks of a generation that has not begun are taken", "queue", "queue/holder_generation.go",
		"return r.Generation > max(begun, oldest) })", "return r.Generation > max(begun, 1000) })", "TestResizeBeforeTheFirstKey", 0,
	},
	// Of these two, jobs come out of order only if one of a key is enqueued into the old blocks by a process that
	// has not heard of the new ones, within a second or two, and another one after it.
	{
		"a generation is retired while jobs of it may come", "queue", "queue/holder_generation.go",
		"if empty && passed && time.Duration(age)*time.Microsecond > store.ResizeAfter+2*Window {", "if _, _ = time.Duration(age), passed; empty {",
		"TestResizeBeforeTheFirstKey", 0,
	},
	{
		"a clock that was set forward retires a generation", "queue", "queue/holder_generation.go",
		"	closed := h.c.clock.closed(instant.Now())\n", "	_ = instant.Now\n	closed := h.c.clock.now() + int64(time.Hour)\n", "TestResizeBeforeTheFirstKey", 0,
	},
	// Queues: jobs that are found.
	{
		"a batch drops a job that was checked out when its block went", "queue", "queue/runner_batch.go",
		"case d.b.Gone && d.state.From != tableRunning:", "case d.b.Gone:", "stuck", 100,
	},
	{
		"a lost answer counts as not enqueued", "queue", "queue/enqueue.go",
		"	if d.Uncertain(err) {\n		return fmt.Errorf(\"%w: %w\", ErrUnknownOutcome, err)", "	if d.Uncertain(err) && err == nil {\n		return fmt.Errorf(\"%w: %w\", ErrUnknownOutcome, err)", "phantom", 60,
	},
	{
		"an Enqueue that gave up while its job was sent counts as not enqueued", "queue", "queue/enqueue_sender.go",
		"	if one.sent {\n		s.client.late.mark", "	if one.sent && why == nil {\n		s.client.late.mark", "phantom", 200,
	},
	// Fair queues.
	{
		"a fair queue does not look ahead of a flood", "tenant", "queue/internal/block/look.go",
		"	return b.fair.turns != nil && !b.terms.AtMostOnce", "	return b.terms == nil && b.fair.turns != nil && !b.terms.AtMostOnce", "unfair", 200,
	},
	{
		"tenants of a fair queue take no turns", "tenant", "queue/internal/block/fair.go",
		"		j.Turn = b.fair.turns.Give(j.Tenant, j.Priority, j.Cost)", "		j.Turn = b.fair.turns.Give(\"\", j.Priority, j.Cost)", "TestWeights", 0,
	},
	// Locks.
	{
		"the fence of a lock does not rise", "lock", "lock/statements.go",
		"session = :session, {next fence}, update_time", "session = :session, fence = fence, update_time", "fence", 5,
	},
	{
		"a lock is taken from a holder whose lease lasts", "lock", "lock/statements.go",
		"WHERE name = :name AND slot = 0\n\t\t\tAND ` + isFree + inTurn(d) + `\n\t\t{returning fence}",
		"WHERE name = :name AND slot = 0\n\t\t\tAND 1 = 1\n\t\t{returning fence}", "two holders", 5,
	},
	{
		"an expired lock is not taken over", "lock", "lock/statements.go",
		"WHERE name = :name AND slot = 0\n\t\t\tAND ` + isFree + inTurn(d) + `\n\t\t{returning fence}",
		"WHERE name = :name AND slot = 0\n\t\t\tAND state = 'FREE'\n\t\t{returning fence}", "stuck", 20,
	},
	{
		"a holder relies on twice its lease", "lock", "lock/keeper.go",
		"le.sent.At.Add(le.opt.TTL - le.opt.Margin)", "le.sent.At.Add(2 * le.opt.TTL)", "two holders", 40,
	},
	{
		"a lease of a lock counts from the answer to its grant", "lock", "lock/lock.go",
		"	return l.begin(le, sent, slot, fence)\n}\n\nfunc (l *Locker) begin", "	sent = instant.MarkNow(ctx)\n	return l.begin(le, sent, slot, fence)\n}\n\nfunc (l *Locker) begin", "two holders", 200,
	},
	// Holders stop at a margin before the end, which is longer than nearly all answers take: no seed of 200 finds it.
	{
		"a lease of a lock counts from the answer to its renewal", "lock", "lock/lease.go",
		"		le.sent = sent\n", "		le.sent = instant.MarkNow(le.ctx)\n", "TestALeaseCountsFromTheQuestion", 0,
	},
	{
		"the context of a lock ends with its lease, and not before", "lock", "lock/keeper.go",
		"le.sent.At.Add(le.opt.TTL - le.opt.Margin)", "le.sent.At.Add(le.opt.TTL)", "TestTheContextEndsBeforeTheLease", 0,
	},
	{
		"a guard lets a late holder pass", "lock", "lock/lease.go",
		"	if held == 0 {\n		return le.lose()", "	if held < 0 {\n		return le.lose()", "register", 200,
	},
	{
		"a leader leads although its work has stopped", "lock", "lock/keeper.go",
		"	if le.opt.Stall > 0 {\n		left", "	if le.opt.Stall > 0 && le.opt.Stall < 0 {\n		left", "stalled", 20,
	},
	// Schedules.
	{
		"runs of dead daemons are not taken over", "schedule", "scheduler/takeover.go",
		"if err != nil || len(found) == 0 {\n			return err\n		}\n		alone = found",
		"if err != nil || len(found) >= 0 {\n			return err\n		}\n		alone = found", "stuck", 20,
	},
	{
		"a run that waits does not look at the one before", "schedule", "scheduler/takeover.go",
		"	open := t.open[c.Name]\n	if slices", "	open := t.open[c.Name]\n	if true {\n		return 0\n	}\n	if slices", "overlap", 40,
	},
	// Functions of the workload return when their contexts end, so that two overlap only in the time that an answer takes.
	{
		"a lease of a run counts from the answer to its renewal", "schedule", "scheduler/lease.go",
		"			e.extend(deadline)\n", "			e.extend(max(deadline, s.deadline()))\n", "TestALeaseCountsFromTheQuestion", 0,
	},
	// It ends at its deadline in any case.
	{
		"a lost run goes on", "schedule", "scheduler/lease.go",
		"		case s.executing(e):\n			e.lose()", "		case s.executing(e) && false:\n			e.lose()", "TestRenew", 0,
	},
	// In a bubble no process stands still between an answer and what it begins.
	{
		"a function begins after its lease has ended", "schedule", "scheduler/task.go",
		"	return instant.Now() < t.deadline\n", "	return true\n", "TestALateTaskDoesNotBegin", 0,
	},
	{
		"missed slots that follow others are not written", "schedule", "scheduler/pass.go",
		"	if len(w.lengthened) > 0 {\n		slices", "	if len(w.lengthened) > 1000 {\n		slices", "no outcome", 100,
	},
	{
		"a cancelled run is not told so", "chain", "scheduler/poll.go",
		"		s.asking.Note(s.cancelRequests(ctx))", "		s.asking.Note(nil)", "deaf", 200,
	},
	{
		"a drained daemon begins runs", "chain", "scheduler/probe.go",
		"	return drained\n}", "	return drained && s.drained != drained\n}", "drained", 100,
	},
	{
		"a run that stops its daemon begins again at once", "chain", "internal/pace/stops.go",
		"	if n < Suspicious {", "	if n < 100*Suspicious {", "stops", 100,
	},
	{
		"a chain does not go on after a failure", "chain", "scheduler/record.go",
		"		next = c.OnFailure\n", "		_ = c.OnFailure\n", "chain", 20,
	},
	{
		"two daemons of a host run what is due since its start", "chain", "scheduler/boot.go",
		"		if err != nil || len(had) > 0 {\n			return err\n		}\n		if _, err = tx.Exec(ctx, noteBoot, args); err != nil || !make {",
		"		if err == nil && len(had) == 0 {\n			_, err = tx.Exec(ctx, noteBoot, args)\n		}\n		if err != nil || !make {", "boot", 40,
	},
	{
		"runs of a host's start that is over wait for ever", "chain", "scheduler/boot.go",
		"		_, _, err = s.takeOverFrom(ctx, lane, batch, true)", "		_, _ = lane, batch", "stuck", 200,
	},
	{
		"any host runs what is due since the start of one", "chain", "scheduler/boot.go",
		"return tag + bootMark + boot }", "return tag + bootMark + boot[:4] }", "boot", 40,
	},
	{
		"a time that the clocks skip has no slot", "zone", "scheduler/cronspec/schedule.go",
		"		case once && small && gap && slot.Before(now):\n			return seg.end, true\n", "", "lost", 100,
	},
	{
		"a recovery is told like a trouble", "notice", "internal/ops/notify/gather.go",
		"		case x.told != 0 && x.well != 0:", "		case x.told != 0 && x.well != 0 && len(group) == 0:", "notice", 20,
	},
	{
		"a dead job that is retried does not take its key again", "unique", "queue/internal/store/unique.go",
		"		if rows[i].Holder == 0 {\n			theirs.Add", "		if rows[i].Holder < 0 {\n			theirs.Add", "unheld", 100,
	},
	{
		"of a key that is there twice in a batch, the second one is named", "unique", "queue/internal/store/unique.go",
		"r.Holder = cmp.Or(rows[of].Holder, rows[of].ID)", "r.Holder = cmp.Or(rows[of].Holder, r.ID)", "batch", 20,
	},
	{
		"a job that replaces another one does not take its key", "unique", "queue/internal/store/replace.go",
		"job = picked.taker, wait_until", "job = picked.holder, wait_until", "held", 20,
	},
	{
		"a dead job comes back though another one has its key", "unique", "queue/admin/bulk.go",
		"		if keys[i].Holder != 0 {\n			inUse", "		if keys[i].Holder < 0 {\n			inUse", "twins", 60,
	},
	{
		"a job begins although its row may not have been removed", "once", "queue/outbox_flusher.go",
		"		err = f.consume(ctx, t)\n", "		_ = f.consume(ctx, t)\n", "twice", 100,
	},
	{
		"a worker goes on though none of its handlers returns", "progress", "queue/runner_stuck.go",
		"	if at.Sub(run.allStuck) >= run.opt.EndStuck {", "	if at.Sub(run.allStuck) >= time.Hour {", "hopeless", 200,
	},
	{
		"a worker that has a doorbell does not poll", "queue", "queue/holder_poll.go",
		"		most = max(most, waitingLook, n*lookCostHeard/3)\n", "		return time.Hour\n", "stuck", 200,
	},
	{
		"a claim that is abandoned stays so", "claim", "httpapi/given.go",
		"time.AfterFunc(lease, func() { p.expire(g) })", "time.AfterFunc(lease+time.Hour, func() { p.expire(g) })", "stuck", 20,
	},
	{
		"a claim ends early", "claim", "httpapi/given.go",
		"		g.until = instant.Now().Add(lease)\n		g.timer = time.AfterFunc(lease,", "		g.until = instant.Now().Add(lease / 2)\n		g.timer = time.AfterFunc(lease/2,", "given twice", 100,
	},
	{
		"a lock that was held for a moment is free at once", "lock", "lock/lease.go",
		"	kept := le.begun.Add(le.opt.MinHold).Sub(instant.Now())", "	kept := le.begun.Sub(instant.Now())", "min hold", 100,
	},
	{
		"a lock may be held for ever", "lock", "lock/keeper.go",
		"	if le.opt.MaxHold > 0 {\n		left", "	if le.opt.MaxHold < 0 {\n		left", "max hold", 40,
	},
	{
		"a handler begins before the key of its job is free", "unique", "queue/runner_dispatch.go",
		"run.stillMine(run.announced(unit))", "run.stillMine(unit)", "change", 200,
	},
}

// TestMutants puts each fault into a copy of the product, and looks after how many seeds a simulation
// finds it. What a file of totals says of the commit that is checked out is not done again.
func TestMutants(t *testing.T) {
	if !*flagMutants {
		t.Skip("make sim-mutants does this")
	}
	var all []mutant
	for _, m := range slices.Concat(mutants, blockRules) {
		if strings.Contains(m.name, *flagMutant) {
			all = append(all, m)
		}
	}
	h := newHunt(t, len(all))
	for _, m := range all {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel() // as many as there are processors
			h.mutant(t, &m)
		})
	}
}

// caught says which seed has found a mutant; 0: none. Within 0 means a test, whose name is Kind.
type caught struct {
	Name, Workload, Kind string
	Seed, Within         int
	Commit               string
}

// A hunt looks for mutants, several at a time.
type hunt struct {
	commit string
	dice   string                     // the overlay that fixes what Go's runtime draws
	lives  chan struct{}              // one for each life that may go on at a time
	sound  map[[2]string]func() error // by package and test: whether it passes without a mutant

	mu     sync.Mutex
	totals struct {
		Runs    []made
		Mutants []caught
	}
	place      map[string]int // of a mutant in the table, by name
	began      time.Time
	done, most int
}

// newHunt reads the file of totals, if there is one.
func newHunt(t *testing.T, most int) *hunt {
	t.Helper()
	h := &hunt{
		commit: commit(t), dice: overlay(t), lives: make(chan struct{}, max(1, *flagAcross)),
		sound: map[[2]string]func() error{}, place: map[string]int{}, began: time.Now(), most: most, //nolint:forbidigo // how long it takes
	}
	for i, m := range slices.Concat(mutants, blockRules) {
		h.place[m.name] = i
		if m.within == 0 && h.sound[m.where()] == nil {
			h.sound[m.where()] = sync.OnceValue(func() error {
				out, err := m.test(t)
				if err != nil {
					return fmt.Errorf("%s fails without a mutant: %w: %s", m.kind, err, out)
				}
				return nil
			})
		}
	}
	if *flagTotals == "" {
		return h
	}
	text, err := os.ReadFile(*flagTotals)
	if err == nil {
		err = json.Unmarshal(text, &h.totals)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	h.totals.Mutants = slices.DeleteFunc(h.totals.Mutants, func(c caught) bool {
		_, still := h.place[c.Name]
		return !still
	})
	return h
}

// mutant looks for one, unless that was done at this commit.
func (h *hunt) mutant(t *testing.T, m *mutant) {
	t.Helper()
	c := caught{m.name, m.workload, m.kind, 0, min(m.within, *flagWithin), h.commit}
	known := h.known(c)
	switch {
	case known != nil:
		c = *known
	case m.within == 0:
		c.Seed = h.fails(t, m)
	default:
		c.Seed = h.find(t, m)
	}
	h.note(t, &c, known != nil)
	if c.Seed == 0 {
		t.Errorf("%s: not found as %q", m.name, m.kind)
	}
}

// known returns what the totals say of a mutant at this commit; nil if nothing, or if files differ from the commit's.
func (h *hunt) known(c caught) *caught {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.commit == "unknown" || strings.HasSuffix(h.commit, "-dirty") {
		return nil
	}
	for _, was := range h.totals.Mutants {
		c.Seed = was.Seed
		if was == c {
			return &c
		}
	}
	return nil
}

// note prints what came of a mutant, and writes it to the file of totals, in place of what that says of the same mutant.
func (h *hunt) note(t *testing.T, c *caught, known bool) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done++
	when := time.Since(h.began).Round(time.Second).String()
	if known {
		when = "earlier"
	}
	fmt.Printf("%d of %d, %s: %s: %s: %s: seed %d of %d\n", h.done, h.most, when, c.Name, c.Workload, c.Kind, c.Seed, c.Within)
	if known || *flagTotals == "" {
		return
	}
	if run := (made{"make sim-mutants", h.commit}); !slices.Contains(h.totals.Runs, run) {
		h.totals.Runs = append(h.totals.Runs, run)
	}
	h.totals.Mutants = slices.DeleteFunc(h.totals.Mutants, func(o caught) bool { return o.Name == c.Name })
	h.totals.Mutants = append(h.totals.Mutants, *c)
	slices.SortFunc(h.totals.Mutants, func(a, b caught) int { return h.place[a.Name] - h.place[b.Name] })
	writeJSON(t, *flagTotals+".new", &h.totals)
	if err := os.Rename(*flagTotals+".new", *flagTotals); err != nil {
		t.Fatal(err)
	}
}

// find returns after how many seeds a promise is broken, beginning with the first one; 0: not at all.
func (h *hunt) find(t *testing.T, m *mutant) int {
	t.Helper()
	a := newAcross(t, build(t, m.overlay(t, h.dice)))
	most, across := min(m.within, *flagWithin), cap(h.lives)
	for first := 1; first <= most; first += across {
		found := make([]bool, across)
		var group sync.WaitGroup
		for i := range found {
			group.Go(func() {
				h.lives <- struct{}{}
				defer func() { <-h.lives }()
				o, _, _ := a.live(t.Context(), scenario{m.workload, uint64(first + i), *flagMinutes, nil}, "-until="+m.kind)
				found[i] = slices.ContainsFunc(o.Broken, func(v violation) bool { return v.Kind == m.kind })
			})
		}
		group.Wait()
		if i := slices.Index(found, true); i >= 0 {
			return first + i
		}
	}
	return 0
}

// fails runs the test that is to find the mutant, and returns 1 if it does. A test that fails without it finds nothing.
func (h *hunt) fails(t *testing.T, m *mutant) int {
	t.Helper()
	if err := h.sound[m.where()](); err != nil {
		t.Error(err)
		return 0
	}
	if out, err := m.test(t, "-overlay", m.overlay(t, "")); err == nil || !strings.Contains(string(out), "--- FAIL: "+m.kind) {
		t.Logf("%s: %v: %s", m.kind, err, out)
		return 0
	}
	return 1
}

// where is the package and the test that is to find the mutant.
func (m *mutant) where() [2]string { return [2]string{filepath.Dir(m.file), m.kind} }

// test runs the test that is to find the mutant.
func (m *mutant) test(t *testing.T, flags ...string) ([]byte, error) {
	t.Helper()
	args := append([]string{"test", "-vet=off", "-count=1", "-run", "^" + m.kind + "$"}, flags...)
	args = append(args, "../"+filepath.Dir(m.file))
	if m.kind == "TestModel" {
		args = append(args, "-rapid.seed=1", "-rapid.checks=10000", "-rapid.steps=60", "-rapid.nofailfile", "-rapid.shrinktime=1s")
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "DBCRON_TEST_ENGINES=sqlite")
	return cmd.CombinedOutput()
}

// change returns the mutant's file and its changed text.
func (m *mutant) change(t *testing.T) (file, text string) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	contents, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(contents), m.from); n != 1 {
		t.Fatalf("%s: %s has %d times: %s", m.name, m.file, n, m.from)
	}
	return file, strings.Replace(string(contents), m.from, m.to, 1)
}

// What the mutants change is still there, and compiles when it was changed.
func TestMutantsApply(t *testing.T) {
	exports := exportsOf(t)
	for _, m := range slices.Concat(mutants, blockRules) {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			file, text := m.change(t)
			set := token.NewFileSet()
			var files []*ast.File
			found, err := gobuild.ImportDir(filepath.Dir(file), 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range found.GoFiles {
				var from any
				if name == filepath.Base(file) {
					from = text
				}
				one, err := parser.ParseFile(set, filepath.Join(found.Dir, name), from, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, one)
			}
			look := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
			check := types.Config{Importer: importer.ForCompiler(set, "gc", look), GoVersion: runtime.Version()}
			if _, err := check.Check(found.Name, set, files, nil); err != nil {
				t.Errorf("%s does not compile: %v", m.name, err)
			}
			if m.within == 0 && !hasTest(t, found, m.kind) {
				t.Errorf("%s has no test %s", found.Dir, m.kind)
			}
		})
	}
}

// hasTest reports whether a package has a test.
func hasTest(t *testing.T, in *gobuild.Package, name string) bool {
	t.Helper()
	for _, file := range slices.Concat(in.TestGoFiles, in.XTestGoFiles) {
		text, err := os.ReadFile(filepath.Join(in.Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(t ") {
			return true
		}
	}
	return false
}

// exportsOf returns the files that say what packages export, for all that the mutants' packages import.
func exportsOf(t *testing.T) map[string]string {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, m := range mutants {
		args = append(args, "../"+filepath.Dir(m.file))
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all[path] = file
		}
	}
	return all
}

// overlay writes a file for go build that replaces the mutant's file, besides those of the runtime, if any.
func (m *mutant) overlay(t *testing.T, runtime string) string {
	t.Helper()
	dir := t.TempDir()
	list := struct{ Replace map[string]string }{map[string]string{}}
	if runtime != "" {
		text, err := os.ReadFile(runtime)
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, mutated := m.change(t)
	changed := filepath.Join(dir, "changed.go")
	list.Replace[file] = changed
	if err := os.WriteFile(changed, []byte(mutated), 0o600); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	writeJSON(t, name, list)
	return name
}
