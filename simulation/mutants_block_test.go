package simulation

// blockRules are the rules by which a block of a worker decides, each taken out: TestModel of package block finds every one.
//
// Three rules it does not find: that moves of a key wait for acks of which a trip cannot take all (it has never so many), that a trip is
// wanted for what was put back (there is another reason for one, soon), and that held jobs of a line follow each other by their ids.
var blockRules = []mutant{
	{
		"block: a job does not wait for the one before", "", "queue/internal/block/keyqueue.go",
		`	if len(q.turns) == 0 && q.mayFollow() {`, `	if q.mayFollow() { q.turns = nil`, "TestModel", 0,
	},
	{
		"block: a line goes on after a row that is gone, whoever has the block", "", "queue/internal/block/keys.go",
		`	b.Hold(line, id)
	b.Part(line, id)
	b.Missed = append(b.Missed, HeldKey{id, line})
`, `	b.Release(line, id)
`, "TestModel", 0,
	},
	{
		"block: moves of a failed trip are dropped", "", "queue/internal/block/owed.go",
		`append(moves, b.Moves...)`, `b.Moves`, "TestModel", 0,
	},
	{
		"block: acks of a failed trip are dropped", "", "queue/internal/block/owed.go",
		`append(acks, b.Acks...)`, `b.Acks`, "TestModel", 0,
	},
	{
		"block: lines that wait for the fence stay so after a failed trip", "", "queue/internal/block/owed.go",
		`append(gone, b.Missed...)`, `b.Missed`, "TestModel", 0,
	},
	{
		"block: an id is forgotten that a read under way returns", "", "queue/internal/block/owed.go",
		`	if b.Serving {
		b.lost`, `	if false {
		b.lost`, "TestModel", 0,
	},
	{
		"block: a refused end does not hold its line", "", "queue/internal/block/owed.go",
		`	if r.Job.Line != "" && !r.Consumes && !b.Gone {`, `	if false {`, "TestModel", 0,
	},
	{
		"block: lines are not settled", "", "queue/internal/block/trip.go",
		`	b.Settle()
	b.Reads.Shaken`, `	b.Reads.Shaken`, "TestModel", 0,
	},
	{
		"block: jobs overtake those put back", "", "queue/internal/block/backlog.go",
		`	if l.Skips(j.ID, r.After[j.Priority], b.needs(l)) {`, `	if false {`, "TestModel", 0,
	},
	{
		"block: acks overtake refused ones", "", "queue/internal/block/trip.go",
		`	if b.Bars(j.Line) {`, `	if false {`, "TestModel", 0,
	},
	{
		"block: refusals are never tried again", "", "queue/internal/block/owed.go",
		`r.Next <= now.At && r.Paused == 0`, `r.Next < 0`, "TestModel", 0,
	},
	{
		"block: cancelled jobs are not removed", "", "queue/internal/block/trip.go",
		`		if !there[j.ID] && j.Waits() {`, `		if false {`, "TestModel", 0,
	},
	{
		"block: reads do not go back for jobs that were committed late", "", "queue/internal/block/reads.go",
		`at.Sub(s.Looked) >= LookEvery && !s.Level() ||`, `false ||`, "TestModel", 0,
	},
	{
		"block: due jobs are not read", "", "queue/internal/block/trip.go",
		`	if b.Open() && b.HasRoom() && (b.Dues.Ripe ||`, `	if b.Open() && b.HasRoom() && (false ||`, "TestModel", 0,
	},
	{
		"block: jobs put back are not resumed", "", "queue/internal/block/keys.go",
		`	if b.needs(l) {
		b.resume(l)
	}
`, ``, "TestModel", 0,
	},
	{
		"block: jobs put back at a limit are not read again", "", "queue/internal/block/backlog.go",
		`		b.ReadFrom(first)
`, ``, "TestModel", 0,
	},
	{
		"block: what began counts as read ahead", "", "queue/internal/block/block.go",
		`	j.Phase = PhaseRunning
	b.Unweigh(j)
`, `	j.Phase = PhaseRunning
`, "TestModel", 0,
	},
	{
		"block: payloads that were left behind are not read", "", "queue/internal/block/trip.go",
		`			j.Unloaded = false
			b.Weigh(j)`, `			b.Weigh(j)`, "TestModel", 0,
	},
	{
		"block: limits are not kept", "", "queue/internal/block/block.go",
		`			case !b.host.Opens(g):`, `			case false:`, "TestModel", 0,
	},
	{
		"block: a retry that is read before the attempt before it is forgotten is missed", "", "queue/internal/block/trip.go",
		`	} else if j.From == store.AmongDelayed && (was.From != store.AmongDelayed || was.RunAt != j.RunAt) {`, `	} else if was == nil {`, "TestModel", 0,
	},
	{
		"block: keys whose jobs were read again stay put back", "", "queue/internal/block/trip.go",
		`		b.hasReadAgain(p.Read)
`, ``, "TestModel", 0,
	},
	{
		"block: a job is read twice", "", "queue/internal/block/block.go",
		`	if _, ok := b.seen[j.ID]; ok {`, `	if false {`, "TestModel", 0,
	},
	{
		"block: acks are written twice", "", "queue/internal/block/trip.go",
		`	p.Acks, b.Acks = b.Acks[:n:n], b.Acks[n:]`, `	p.Acks = b.Acks[:n:n]`, "TestModel", 0,
	},
	{
		"block: lines of missed rows never go on", "", "queue/internal/block/trip.go",
		`	p.Gone, b.Missed = b.Missed, nil
`, `	b.Missed = nil
`, "TestModel", 0,
	},
	{
		"block: a job of a key that comes late does not have the block read whole", "", "queue/internal/block/trip.go",
		`!b.terms.AtMostOnce && slices.ContainsFunc(f.Fresh, b.comesLate) {`, `!b.terms.AtMostOnce && false {`, "TestModel", 0,
	},
	{
		"block: due jobs of a block with keys are not read from the horizon", "", "queue/internal/block/dues.go",
		`case s.late || keyed || at.Sub`, `case s.late || at.Sub`, "TestModel", 0,
	},
	{
		"block: a look from an id on does not lower the horizon", "", "queue/internal/block/reads.go",
		`	s.lower(id - 1)
`, ``, "TestModel", 0,
	},
	{
		"block: acks of a failed trip lose their order", "", "queue/internal/block/owed.go",
		`	b.Acks, b.Moves, b.Missed = append(acks, b.Acks...)`, `	b.Acks, b.Moves, b.Missed = append(b.Acks, acks...)`, "TestModel", 0,
	},
	{
		"block: the id of a removed job is remembered for ever", "", "queue/internal/block/block.go",
		`	b.forget = append(b.forget, j.ID)
	b.ReleaseIfHeld`, `	b.ReleaseIfHeld`, "TestModel", 0,
	},
	{
		"block: the average of payloads is not kept", "", "queue/internal/block/trip.go",
		`	b.sized(p.Room)
`, ``, "TestModel", 0,
	},
	{
		"block: what is behind a refusal is written at once", "", "queue/internal/block/trip.go",
		`	b.keepBehind(p)
`, ``, "TestModel", 0,
	},
	{
		"block: moves overtake refused ones", "", "queue/internal/block/trip.go",
		`		if b.Bars(m.Of().Line) {`, `		if false {`, "TestModel", 0,
	},
	{
		"block: the first keys are taken as they come", "", "queue/internal/block/trip.go",
		`&& !b.terms.AtMostOnce && slices.ContainsFunc(f.Fresh, hasKey) {`, `&& false && hasKey(nil) {`, "TestModel", 0,
	},
	{
		"block: what is read is never skipped", "", "queue/internal/block/trip.go",
		`	if j.From == store.AmongReady && !r.Back && b.skips(j, r) {`, `	if false {`, "TestModel", 0,
	},
	{
		"block: what was lost during a read is never forgotten", "", "queue/internal/block/trip.go",
		`	b.forget, b.lost = append(b.forget, b.lost...), nil
`, ``, "TestModel", 0,
	},
	{
		"block: a crowded block does not forget", "", "queue/internal/block/trip.go",
		`!p.Delayed && !b.Crowded() {`, `!p.Delayed {`, "TestModel", 0,
	},
	{
		"block: a read of what was put back takes all", "", "queue/internal/block/trip.go",
		`		f.Fresh = b.keepWanted(p.Read, f.Fresh)
`, ``, "TestModel", 0,
	},
	{
		"block: a cancelled job waits for its payload", "", "queue/internal/block/trip.go",
		`		default:
			b.remove(j)
		}
	}
	return lost`, `		default:
		}
	}
	return lost`, "TestModel", 0,
	},
	{
		"block: no trip for payloads", "", "queue/internal/block/trip.go",
		`	if b.Loads() {
		return true
	}
`, ``, "TestModel", 0,
	},
	{
		"block: a job that left does not wait for its retry", "", "queue/internal/block/keyqueue.go",
		`		q.turns[at].Away = true
		q.turns[at].parted++`, `		q.turns[at].parted++`, "TestModel", 0,
	},
	{
		"block: only the last one put back is known", "", "queue/internal/block/keyqueue.go",
		`		q.skipped = Least(q.skipped, w.id)
`, `		q.skipped = w.id
`, "TestModel", 0,
	},
	{
		"block: a read from behind takes what was put back", "", "queue/internal/block/keyqueue.go",
		`	if wanted && after < q.skipped {`, `	if wanted {`, "TestModel", 0,
	},
	{
		"block: an earlier job is skipped", "", "queue/internal/block/keyqueue.go",
		`	if q.skipped == 0 || id < q.skipped {`, `	if q.skipped == 0 {`, "TestModel", 0,
	},
	{
		"block: withheld acks stay counted", "", "queue/internal/block/owed.go",
		`	b.Withheld -= len(taken)
`, ``, "TestModel", 0,
	},
}
