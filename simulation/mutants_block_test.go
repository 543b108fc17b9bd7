package simulation

// blockRules are the rules by which a block of a worker decides, each taken out: TestModel of package block finds it, or another test
// there. A rule that is only for speed says so where it is.
var blockRules = []mutant{
	{
		"block: a batch forgets that it gathers when the end before it is no longer refused", "", "queue/internal/block/keys.go",
		"	if l.batch.by == id {", "	if l.batch.by != 0 {", "TestGathersBehindARefusedEnd", 0,
	},
	{
		"block: a job does not wait for the one before", "", "queue/internal/block/keyqueue.go",
		`	if len(q.turns) == 0 && q.mayFollow() {`, `	if q.mayFollow() { q.turns = nil`, "TestModel", 0,
	},
	{
		"block: a line goes on after a row that is gone, whoever has the block", "", "queue/internal/block/keys.go",
		`	b.Hold(line, id)
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
		b.lost`, "TestForgetSoon", 0,
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
		`at.Sub(s.Looked) >= LookEvery && !s.Level() ||`, `false ||`, "TestReadsGoBack", 0,
	},
	{
		"block: due jobs are not read", "", "queue/internal/block/trip.go",
		`	if b.Open() && b.HasRoom() && (b.Dues.Ripe ||`, `	if b.Open() && b.HasRoom() && (false ||`, "TestModel", 0,
	},
	{
		"block: jobs put back are not resumed", "", "queue/internal/block/keys.go",
		`	b.tidy(l)
	b.readOn(l)
`, `	b.tidy(l)
`, "TestModel", 0,
	},
	{
		"block: what was put back behind a retry is not read", "", "queue/internal/block/trip.go",
		`			b.readOn(l)
`, `			_ = l
`, "TestReadsOnBehindARetry", 0,
	},
	{
		"block: jobs put back wait for a read of the less urgent ones", "", "queue/internal/block/reads.go",
		`slices.Max(s.horizon[1:])`, `slices.Min(s.horizon[1:])`, "TestReadsOnBesideAFlood", 0,
	},
	{
		"block: jobs put back at a limit are not read again", "", "queue/internal/block/backlog.go",
		`		b.ReadFrom(first)
`, ``, "TestPutBackAtALimitIsReadAgain", 0,
	},
	{
		"block: what began counts as read ahead", "", "queue/internal/block/block.go",
		`	j.Phase = PhaseRunning
	b.goes(j)
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
		`	if g := b.host.Gate(j.Kind); !b.host.Admits(g, j.Cost) {`, `	if g := b.host.Gate(j.Kind); false {`, "TestModel", 0,
	},
	{
		"block: limits of tenants are not kept", "", "queue/internal/block/block.go",
		`	if g := b.host.Tenant(j.Tenant); !b.host.Admits(g, j.Cost) {`, `	if g := b.host.Tenant(j.Tenant); false {`, "TestHeldModel", 0,
	},
	{
		"block: held jobs that were put back are not read again", "", "queue/internal/block/held.go",
		`	b.ReadFrom(least)
`, ``, "TestHeldModel", 0,
	},
	{
		"block: held jobs of a limiter that opens stay where they are", "", "queue/internal/block/held.go",
		`		n = w.Len()
		b.list(w)
`, `		n = w.Len()
`, "TestHeldModel", 0,
	},
	{
		"block: a retry that is read before the attempt before it is forgotten is missed", "", "queue/internal/block/trip.go",
		`	} else if j.From == store.AmongDelayed && (was.From != store.AmongDelayed || was.RunAt != j.RunAt) {`, `	} else if was == nil {`, "TestRetryIsReadAgain", 0,
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
		`&& slices.ContainsFunc(f.Fresh, b.comesLate) {`, `&& false {`, "TestMarks", 0,
	},
	{
		"block: due jobs of a block with keys are not read from the horizon", "", "queue/internal/block/dues.go",
		`case s.late || keyed || at.Sub`, `case s.late || at.Sub`, "TestDuesOfKeysFromTheHorizon", 0,
	},
	{
		"block: a look from an id on does not lower the horizon", "", "queue/internal/block/reads.go",
		`	s.lower(id - 1)
`, ``, "TestFromBelowTheHorizon", 0,
	},
	{
		"block: acks of a failed trip lose their order", "", "queue/internal/block/owed.go",
		`	b.Acks, b.Moves, b.Missed = append(acks, b.Acks...)`, `	b.Acks, b.Moves, b.Missed = append(b.Acks, acks...)`, "TestFailedTripGoesFirst", 0,
	},
	{
		"block: the id of a removed job is remembered for ever", "", "queue/internal/block/block.go",
		`	b.forget = append(b.forget, j.ID)
	b.ReleaseIfHeld`, `	b.ReleaseIfHeld`, "TestModel", 0,
	},
	{
		"block: the average of payloads is not kept", "", "queue/internal/block/trip.go",
		`	b.sized(p.Room)
`, ``, "TestReadsAsMuchAsFits", 0,
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
		`&& slices.ContainsFunc(f.Fresh, hasKey) {`, `&& false && hasKey(nil) {`, "TestModel", 0,
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
		`	if q.skipped == 0 || id < q.skipped {`, `	if q.skipped == 0 {`, "TestSkipsOnlyWhatIsBehind", 0,
	},
	{
		"block: withheld acks stay counted", "", "queue/internal/block/owed.go",
		`	b.Withheld -= len(taken)
`, ``, "TestModel", 0,
	},
	{
		"block: moves of a key overtake acks", "", "queue/internal/block/trip.go",
		`	if !b.Keyed || len(b.Acks) == 0 {`, `	if true {`, "TestMovesWaitForAcks", 0,
	},
	{
		"block: no trip for what was put back", "", "queue/internal/block/trip.go",
		` && (b.Reads.Due(at, b.terms.Whole) || b.rereads() != 0)`, ` && b.Reads.Due(at, b.terms.Whole)`, "TestPutBackIsReadAtOnce", 0,
	},
	{
		"block: held jobs do not follow by their ids", "", "queue/internal/block/keyqueue.go",
		`	for at > 0 && q.turns[at-1].Away && q.turns[at-1].ID > id {`, `	for false {`, "TestKeyQueue", 0,
	},
	{
		"block: a job that runs elsewhere is held before one that runs here", "", "queue/internal/block/keyqueue.go",
		`at > 0 && q.turns[at-1].Away && q.turns`, `at > 0 && q.turns`, "TestHoldBehindThoseHere", 0,
	},
	{
		"block: it reads without a lease", "", "queue/internal/block/trip.go",
		`	if !now.Leased {
		return p
	}`, `	if false {
		return p
	}`, "TestModel", 0,
	},
	{
		"block: trips are wanted without a lease that do nothing", "", "queue/internal/block/trip.go",
		`	if !now.Leased {
		return false
	}`, `	if false {
		return false
	}`, "TestModel", 0,
	},
	{
		"block: a crowded block is read", "", "queue/internal/block/trip.go",
		`!b.HasRoom() || b.Crowded() {`, `!b.HasRoom() {`, "TestModel", 0,
	},
	{
		"block: nothing is put back", "", "queue/internal/block/trip.go",
		`	b.evict()
	return t`, `	return t`, "TestCancelledWhilePutBack", 0,
	},
	{
		"block: ids are never forgotten", "", "queue/internal/block/trip.go",
		`	for _, id := range b.forget {
		delete(b.seen, id)
	}
`, ``, "TestModel", 0,
	},
	{
		"block: an id is remembered for what has had the block read whole", "", "queue/internal/block/trip.go",
		`		clear(b.followed) // the reread jobs schedule a read of the block
`, ``, "TestModel", 0,
	},
	{
		"block: a mark without a key has the block read whole", "", "queue/internal/block/late.go",
		`	return j.Line != "" && j.ID&store`, `	return j.ID&store`, "TestMarks", 0,
	},
	{
		"block: a mark of a job that was read before has the block read whole", "", "queue/internal/block/late.go",
		` && b.seen[j.ID] == nil && !b.followed`, ` && !b.followed`, "TestMarks", 0,
	},
	{
		"block: a mark has the block read whole again and again", "", "queue/internal/block/late.go",
		` && !b.followed[j.ID]`, ``, "TestMarks", 0,
	},
	{
		"block: a mark has the block read whole that is being read whole", "", "queue/internal/block/trip.go",
		`	if p.Reads && !p.Read.Whole && !p.Read.Back && slices`, `	if p.Reads && !p.Read.Back && slices`, "TestMarks", 0,
	},
	{
		"block: a mark of a job that was put back has the block read whole", "", "queue/internal/block/trip.go",
		`!p.Read.Whole && !p.Read.Back && slices`, `!p.Read.Whole && slices`, "TestMarks", 0,
	},
	{
		"block: a job that was taken over, and lost before its payload came, is not told", "", "queue/internal/block/trip.go",
		`		case at >= 0 && j.From == store.AmongRunning:
			b.unloaded = slices.Delete(b.unloaded, at, at+1)
			b.Count--
			b.ReleaseIfHeld(j.Line, j.ID)
			lost = append(lost, j)
`, ``, "TestLostBeforeItsPayload", 0,
	},
	{
		"block: a payload comes for a job that is being checked out", "", "queue/internal/block/trip.go",
		`j.Row != RowLeaving && !j.HasEnded() && (j.From`, `!j.HasEnded() && (j.From`, "TestLateForItsPayload", 0,
	},
	{
		"block: a payload comes for a job that was cancelled", "", "queue/internal/block/trip.go",
		` && !j.HasEnded() && (j.From`, ` && (j.From`, "TestLateForItsPayload", 0,
	},
	{
		"block: a payload comes for a job that was put back", "", "queue/internal/block/trip.go",
		` && (j.From == store.AmongRunning || b.seen[j.ID] == j)`, ``, "TestLateForItsPayload", 0,
	},
	{
		"block: a lost block waits for its fence", "", "queue/internal/block/keys.go",
		`	if line == "" || b.Gone {
		return`, `	if line == "" {
		return`, "TestLostBlock", 0,
	},
	{
		"block: a lost block holds lines for refused ends", "", "queue/internal/block/owed.go",
		` && !r.Consumes && !b.Gone {
		b.keyQ`, ` && !r.Consumes {
		b.keyQ`, "TestLostBlock", 0,
	},
	{
		"block: a lost block still wants lines to go on", "", "queue/internal/block/block.go",
		`	b.Missed = nil
	b.Lighten()`, `	b.Lighten()`, "TestLostBlock", 0,
	},
	{
		"block: a lost block reads", "", "queue/internal/block/trip.go",
		`	if !b.Open() || !b.HasRoom() || b.Crowded() {`, `	if !b.HasRoom() || b.Crowded() {`, "TestLostBlock", 0,
	},
	{
		"block: a lost block reads due jobs", "", "queue/internal/block/trip.go",
		`	if b.Open() && b.HasRoom() && (b.Dues.Ripe`, `	if b.HasRoom() && (b.Dues.Ripe`, "TestLostBlock", 0,
	},
	{
		"block: a lost block wants to read", "", "queue/internal/block/trip.go",
		`	if !b.Open() || !b.HasRoom() {
		return false
	}
	at`, `	if !b.HasRoom() {
		return false
	}
	at`, "TestLostBlock", 0,
	},
	{
		"block: a lost block counts payloads", "", "queue/internal/block/block.go",
		`	b.Missed = nil
	b.Lighten()`, `	b.Missed = nil`, "TestLostBlock", 0,
	},
	{
		"block: a job overtakes those put back", "", "queue/internal/block/keyqueue.go",
		` && (q.skipped == 0 || q.waiting[0].order < q.skipped)`, ``, "TestKeyQueue", 0,
	},
	{
		"block: a retry waits behind itself", "", "queue/internal/block/keyqueue.go",
		`	if q.HeldBy(id) {
		q.turns[0].Away = false
		return true
	}
`, ``, "TestLines", 0,
	},
	{
		"block: a job that has come back is put back", "", "queue/internal/block/keyqueue.go",
		`n >= 0 || q.turn(w.id) >= 0 || !leave`, `n >= 0 || !leave`, "TestPutBackLeavesTurns", 0,
	},
	{
		"block: a job makes way that is not alone", "", "queue/internal/block/keyqueue.go",
		`len(q.turns) != 1 || !q.HeldBy(id) {`, `!q.HeldBy(id) {`, "TestGiveWay", 0,
	},
	{
		"block: a job makes way whose turn has not come", "", "queue/internal/block/keyqueue.go",
		`len(q.turns) != 1 || !q.HeldBy(id) {`, `len(q.turns) != 1 {`, "TestGiveWay", 0,
	},
	{
		"block: a job makes way without those behind it", "", "queue/internal/block/keyqueue.go",
		`	q.PutBack(0, leave)
	q.turns`, `	q.turns`, "TestGiveWay", 0,
	},
	{
		"block: a refusal counts twice", "", "queue/internal/block/owed.go",
		`	if slices.Contains(b.Refusals, r) {
		return
	}
`, ``, "TestModel", 0,
	},
	{
		"block: an end is set aside ahead of earlier ones", "", "queue/internal/block/owed.go",
		`			return slices.ContainsFunc(b.Refusals, func(o *Refusal) bool { return o.Job.ID == id })`, `			return false`, "TestModel", 0,
	},
	{
		"block: an id is forgotten before what was read is taken in", "", "queue/internal/block/owed.go",
		`	b.Forget(id)         // not`, `	b.ForgetNow(id)      // not`, "TestForgetSoon", 0,
	},
	{
		"block: picks pass over what is read again in parts", "", "queue/internal/block/backlog.go",
		`		b.pickFrom(j)
`, ``, "TestPutBackIsPickedInOrder", 0,
	},
	{
		"block: a pick is taken in that was planned before its key was read again", "", "queue/internal/block/pick.go",
		`ended || b.from(of, b.tenant(of)) < p.After || `, `ended || `, "TestPutBackIsPickedInOrder", 0,
	},
	{
		"block: the next pick goes on behind one that was not taken in", "", "queue/internal/block/pick.go",
		`		if b.from(of, tenant) >= p.After {`, `		if true {`, "TestPutBackIsPickedInOrder", 0,
	},
	{
		"block: jobs with keys are picked behind one that follows a late one", "", "queue/internal/block/pick.go",
		`t.left == 0 && b.barred(j.ID) || `, ``, "TestMarkOfAnotherTenant", 0,
	},
	{
		"block: picks go on behind what was left to the reads", "", "queue/internal/block/pick.go",
		`t.left, t.upto = 0, min(t.upto, t.left-1)`, `t.left = 0`, "TestMarkOfAnotherTenant", 0,
	},
	{
		"block: the jobs of one tenant are picked ahead of themselves", "", "queue/internal/block/pick.go",
		`		n += t.brought
`, ``, "TestEqualTenantsAreNotPicked", 0,
	},
	{
		"block: jobs of tenants are picked whose turns come by the reads", "", "queue/internal/block/pick.go",
		`n += b.ready.Upto(priority, turn); b.HasRoom()`, `n += b.ready.Upto(priority, turn); false`, "TestEqualTenantsAreNotPicked", 0,
	},
	{
		"block: what a consuming worker leaves in the table keeps it from reading on", "", "queue/internal/block/trip.go",
		`	b.Reads.Pass(j.Priority, j.ID)
}

// noteRead`, `}

// noteRead`, "TestReadsOnBehindWhatItLeaves", 0,
	},
	{
		"block: due jobs that a consuming worker leaves in the table keep it from reading on", "", "queue/internal/block/trip.go",
		`		b.Dues.Pass(j.Due())
`, ``, "TestReadsOnBehindWhatItLeaves", 0,
	},
	{
		"block: a job on trial begins with others of its key", "", "queue/internal/block/keys.go",
		`|| j.Tried || b.Gone || b.Leaving || b.Suspect > 0 || len(b.doubted) > 0 {`, `|| b.Gone || b.Leaving {`, "TestBeginsAlone", 0,
	},
	{
		"block: a batch begins behind a refused end", "", "queue/internal/block/keys.go",
		` || !l.HeldBy(j.ID) || j.Tried`, ` || j.Tried`, "TestBeginsAlone", 0,
	},
	{
		"block: suspects are not tried", "", "queue/internal/block/block.go",
		`		b.doubt(j)
		return
	}
	b.makeReady(j)`, `	}
	b.makeReady(j)`, "TestModel", 0,
	},
	{
		"block: trials have no ranks", "", "queue/internal/block/block.go",
		`cmp.Compare(RankOf(o.Line), RankOf(j.Line)), `, ``, "TestModel", 0,
	},
	{
		"block: jobs of others' kinds begin", "", "queue/internal/block/block.go",
		`	if g := b.host.Stranger(j.Kind); g != nil {`, `	if g := b.host.Stranger(j.Kind); g != nil && b.Gone {`, "TestModel", 0,
	},
	{
		"block: jobs wait at a barrier that is gone", "", "queue/internal/block/kinds.go",
		`			take(s)
			delete(b.aside, g)
`, ``, "TestModel", 0,
	},
	{
		"block: due jobs that were left to others are forgotten", "", "queue/internal/block/kinds.go",
		`		b.Left = false
		b.Dues.Anew()
`, `		b.Left = false
`, "TestLeftIsReadAgain", 0,
	},
	{
		"block: a full batch is not told", "", "queue/internal/block/keys.go",
		`		l.batch.full = nil
		full()
`, `		l.batch.full = nil
`, "TestGather", 0,
	},
	{
		"block: jobs of other kinds begin in a batch", "", "queue/internal/block/keys.go",
		`return j.Kind == kind && !j.Unloaded`, `return !j.Unloaded`, "TestModel", 0,
	},
	{
		"block: a refused removal is not read for again", "", "queue/internal/block/owed.go",
		`	if r.Consumes && r.Job.Line != "" {
		b.Reads.Anew()`, `	if r.Consumes && r.Job.Line != "" {
		_ = b.Reads`, "TestModel", 0,
	},
	{
		"block: a batch does not gather", "", "queue/internal/block/keys.go",
		`	l.batch.full = full
	return false`, `	return true`, "TestGather", 0,
	},
	{
		"block: a batch of one gathers", "", "queue/internal/block/keys.go",
		`l == nil || most == 1 {
		return true`, `l == nil {
		return true`, "TestGather", 0,
	},
	{
		"block: an empty block remembers what has had it read whole", "", "queue/internal/block/trip.go",
		`	b.RestAfter(r, at, took)
	if r.Routine {
		clear(b.followed)
	}
`, `	b.RestAfter(r, at, took)
`, "TestFoundEmptyForgets", 0,
	},
	{
		"block: a pick begins behind the first jobs of some tenants", "", "queue/internal/block/pick.go",
		`len(p.Tenants) == 1 || from < p.After {`, `len(p.Tenants) == 1 {`, "TestPicksAllThatIsAhead", 0,
	},
	{
		"block: a look passes over what an earlier one has seen", "", "queue/internal/block/look.go",
		`		case t.ahead <= b.from(of, t) && s.First`, `		case s.First`, "TestPicksAllThatIsAhead", 0,
	},
	{
		"block: a look does not go back for what was committed late", "", "queue/internal/block/look.go",
		`		case s.First <= t.upto: // perhaps committed late
			t.upto = s.First - 1
`, ``, "TestPicksAllThatIsAhead", 0,
	},
	{
		"block: a cancelled job goes on waiting for its key", "", "queue/internal/block/block.go",
		`		l.Remove(j)
`, `		_ = l
`, "TestModel", 0,
	},
	// Costs.
	{
		"block: a job begins that costs more than its limit lets pass", "", "queue/internal/block/block.go",
		"if g := b.host.Gate(j.Kind); !b.host.Admits(g, j.Cost) {", "if g := b.host.Gate(j.Kind); !b.host.Opens(g) {", "TestModel", 0,
	},
	{
		"block: a job begins that costs more than the limit of its queue lets pass", "", "queue/internal/block/block.go",
		"if g := b.dear(j); g != nil {", "if g := b.dear(j); g != nil && j == nil {", "TestModel", 0,
	},
	{
		"block: a job joins a batch that costs more than its limits let pass", "", "queue/internal/block/keys.go",
		" && b.gate(j) == nil && b.dear(j) == nil", "", "TestJoinsWithinLimits", 0,
	},
	{
		"block: a job has one turn, whatever it costs", "", "queue/internal/block/turns.go",
		"	t.next[of] = at + t.step(tenant)*int64(max(1, cost))\n", "	t.next[of] = at + t.step(tenant)\n", "TestTurnsOfCosts", 0,
	},
	{
		"block: who makes a trip necessary does not say so", "", "queue/internal/block/keys.go",
		"	b.Missed = append(b.Missed, HeldKey{id, line})\n	b.host.Owes()", "	b.Missed = append(b.Missed, HeldKey{id, line})", "TestOwes", 0,
	},
	{
		"block: jobs of kinds that nobody asks for do not make way", "", "queue/internal/block/backlog.go",
		"b.host.Opens(g) && !b.terms.PerCaller", "b.host.Opens(g)", "TestOtherKindsMakeWay", 0,
	},
}
