package simulation

// A Workload is what the processes of a world do, and what must be true of it afterwards. CONTRIBUTING.md
// has a page on adding one.
type Workload interface {
	// Begin makes the tables and settings, through w.Operator, and starts the processes, with w.Start.
	// No fault happens before it has returned.
	Begin(w *World) error

	// Left says what has begun and has not ended, for people; "" if all has ended. It is called once a
	// second: during the faults, where it may notice that nothing goes on although something could, and
	// after the last one, until all has ended.
	Left(w *World) string

	// Check accounts for everything when all processes have ended: see World.Violate.
	Check(w *World) error

	// Claims lists the situations that some of a few dozen seeds must reach: see World.Reached.
	Claims() []string
}

// workloads lists them. A further workload is a further line here.
var workloads = []struct {
	name string
	make func() Workload
}{
	{"queue", func() Workload { return &queueWork{} }},
	{"lock", func() Workload { return &lockWork{} }},
	{"schedule", func() Workload { return &scheduleWork{} }},
	{"move", func() Workload { return &moveWork{} }},
	{"group", func() Workload { return &groupWork{} }},
	{"limit", func() Workload { return &limitWork{} }},
	{"taker", func() Workload { return &takerWork{} }},
	{"progress", func() Workload { return &progressWork{} }},
	{"chain", func() Workload { return &chainWork{} }},
	{"zone", func() Workload { return &zoneWork{} }},
	{"notice", func() Workload { return &noticeWork{} }},
	{"claim", func() Workload { return &claimWork{} }},
	{"unique", func() Workload { return &uniqueWork{} }},
	{"once", func() Workload { return &onceWork{} }},
	{"tenant", func() Workload { return &tenantWork{} }},
}
