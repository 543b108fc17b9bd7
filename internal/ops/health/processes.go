package health

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// suspiciousFor is how long a run is reported that was handed back since its daemons were stopped.
const suspiciousFor = time.Hour

// ofStops finds schedules whose work may stop its daemons, except those of known.
func ofStops(ctx context.Context, db *dialect.DB, now time.Time, known func(string) bool) (all []Problem, err error) {
	runs, _, err := scheduler.RecentRuns(ctx, db, scheduler.RunFilter{States: []string{"retry"}, Limit: 200, Since: now.Add(-suspiciousFor)})
	seen := map[string]bool{}
	for i := range runs {
		r := &runs[i]
		if r.Stops < scheduler.SuspiciousStops || seen[r.Schedule] || known(r.Schedule) || len(all) == Most {
			continue
		}
		seen[r.Schedule] = true
		all = append(all, Problem{
			Of: Runs, Name: r.Schedule, Run: r.ID, what: "The work of %s may stop its daemon", Why: plain.Cut(r.Error, 200), Since: r.Finished,
			Do: "look whether it restarts the daemon: dbcron schedule explain " + argument(r.Schedule),
		})
	}
	return all, err
}

// OfFiles finds files that daemons could not import, and sources for which daemons have different files.
func OfFiles(ctx context.Context, db *dialect.DB) (all []Problem, files int, err error) {
	found, err := ListFiles(ctx, db, maxFiles)
	if err != nil {
		return nil, 0, err
	}
	first := map[string]*File{}
	told := map[string]bool{}
	for i := range found {
		f := &found[i]
		if f.Problem != "" && len(all) < Most {
			p := Problem{
				Of: Files, Name: f.Source, Bad: true, what: "%s was not imported", Since: f.Read, change: f.Problem,
				Why: "by " + plain.Cut(f.Node, 100) + ": " + plain.Cut(f.Problem, 200),
				Do:  "fix the file; the daemon reads it again when it changes. Until then its schedules stay as they were; other files are not affected",
			}
			if strings.HasPrefix(f.Source, "crontab:") {
				p.Do += ". If it is no crontab, put a dot into its name"
			}
			all = append(all, p)
		}
		switch other := first[f.Source]; {
		case other == nil:
			first[f.Source] = f
		case f.Differs(other) && !told[f.Source] && len(all) < Most:
			told[f.Source] = true
			p := Problem{
				Of: Files, Name: f.Source, Bad: true, change: other.Digest + f.Digest, what: "daemons have different files for %s",
				Why: plain.Cut(other.Node, 100) + " and " + plain.Cut(f.Node, 100) + ", of which the one that imports last removes what the other has",
				Do:  "make the files the same, or give each daemon a --source of its own",
			}
			if f.onlyZone(other) {
				p.what = "daemons read %s in different time zones"
				p.Why = plain.Cut(other.Node, 100) + " and " + plain.Cut(f.Node, 100) +
					" have the same file, and its lines without CRON_TZ get the zone of the one that imports last"
				p.Do = "write CRON_TZ=ZONE at the top of the file, or give all daemons the same --time-zone"
			}
			all = append(all, p)
		}
	}
	return all, len(first), nil
}

// OfWorkers finds queues that have more workers than blocks.
func OfWorkers(ctx context.Context, c *admin.Client) (all []Problem, err error) {
	found, err := c.Surplus(ctx, Most)
	for _, s := range found {
		if jobfield.Reserved(s.Queue) { // each daemon is its worker, and nobody waits for it
			continue
		}
		all = append(all, Problem{
			Of: Queues, Name: s.Queue, what: "Queue %s has more workers than blocks",
			Why: fmt.Sprintf("%d workers share %s, so that some stand idle", s.Workers, plain.Plural(s.Blocks, "block", "blocks")),
			Do:  fmt.Sprintf("give it more: dbcron queue resize %s %d", argument(s.Queue), 2*s.Workers),
		})
	}
	return all, err
}

// versions reports live processes of different versions.
func versions(nodes []scheduler.Node) (all []Problem) {
	count := map[string]int{}
	for i := range nodes {
		if n := &nodes[i]; n.Live && n.Version != "" {
			count[n.Version]++
		}
	}
	if len(count) < 2 {
		return nil
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d of %s", count[v], plain.Cut(v, 64)))
	}
	return []Problem{{
		Of: Processes, what: "Live processes are of several versions", Why: strings.Join(parts, ", "), change: strings.Join(slices.Sorted(maps.Keys(count)), ","),
		Do: "replace the older ones; dbcron help upgrading says how: dbcron node list",
	}}
}

// noDaemon is why no schedule runs.
const noDaemon = "no daemon is at work"

// daemons are the nodes that run schedules, by their tags.
type daemons struct {
	serve map[string]bool   // tags of those that take work
	drain map[string]string // one for each tag that drained ones have
}

func daemonsOf(ctx context.Context, db *dialect.DB) (daemons, error) {
	nodes, err := scheduler.Nodes(ctx, db, "", maxNodes)
	return newDaemons(nodes), err
}

func newDaemons(nodes []scheduler.Node) daemons {
	d := daemons{map[string]bool{}, map[string]string{}}
	for i := range nodes {
		n := &nodes[i]
		if !n.Live || n.Tags == "" {
			continue
		}
		for tag := range strings.SplitSeq(n.Tags, ",") {
			if n.Drained.IsZero() {
				d.serve[tag] = true
			} else {
				d.drain[tag] = n.Process()
			}
		}
	}
	return d
}

// lack says which daemon schedules with a tag lack, or returns nil if one that is live takes work of the tag.
func (d *daemons) lack(tag string) *Cause {
	drained := d.drain[tag]
	switch {
	case d.serve[tag]:
		return nil
	case drained != "":
		return &Cause{
			Why: "every daemon that has the tag " + plain.Cut(tag, 60) + " is drained",
			Do:  "have one take work again: dbcron node undrain " + argument(drained),
		}
	case len(d.serve)+len(d.drain) == 0:
		start := "dbcron serve"
		if tag != "default" {
			start += " --tag " + argument(tag)
		}
		return &Cause{Why: noDaemon, Do: "start one: " + start + "; dbcron node list shows those that were there"}
	}
	return &Cause{
		Why: "no live daemon has the tag " + plain.Cut(tag, 60),
		Do:  "start a daemon for it: dbcron serve --tag " + argument(tag) + "; dbcron node list shows what daemons have",
	}
}

// NobodyAtWork is the problem that jobs have not ended, and no process is there. It is no failure: nothing may be late yet, and workers may
// be started when there is work.
func NobodyAtWork(jobs int) Problem {
	return Problem{
		Of: Processes, what: "No daemon or worker is at work: " + plain.Plural(jobs, "job waits", "jobs wait") + " for one",
		Do: "start what does the jobs: your program with its worker, dbcron worker exec, or dbcron serve for queues with an endpoint",
	}
}

// ofDaemons finds tags of active schedules of which no live daemon takes work, and of which late are late. If no daemon is
// there for any tag, it says that once.
func ofDaemons(ctx context.Context, db *dialect.DB, d *daemons, late map[string]int, atLeast bool) (all []Problem, err error) {
	tags, err := scheduler.Tags(ctx, db)
	if err != nil || !slices.ContainsFunc(tags, func(tag string) bool { return d.lack(tag) != nil }) {
		return nil, err
	}
	counts, err := scheduler.ActiveByTag(ctx, db) // which reads all schedules
	if err != nil {
		return nil, err
	}
	because := func(late int, otherwise string) string {
		if late == 0 {
			return otherwise
		}
		text := plain.Plural(late, "schedule is", "schedules are") + " late because of it"
		if atLeast {
			text = "at least " + text
		}
		return text
	}
	sum := 0
	for _, n := range late {
		sum += n
	}
	if len(d.serve)+len(d.drain) == 0 {
		tag := tags[0]
		if slices.Contains(tags, "default") {
			tag = "default"
		}
		return []Problem{{
			Of: Processes, Bad: true, what: "No daemon is at work", Do: d.lack(tag).Do,
			Why: because(sum, "there are active schedules, which nobody runs"),
		}}, nil
	}
	for _, tag := range tags {
		lack := d.lack(tag)
		if lack == nil || len(all) == Most {
			continue
		}
		p := Problem{
			Of: Processes, Name: tag, what: "Schedules need the tag %s, and no live daemon has it", Bad: true, Do: lack.Do,
			Why: because(late[tag], plain.Plural(counts[tag], "active schedule has it", "active schedules have it")),
		}
		if d.drain[tag] != "" {
			p.what = "Schedules need the tag %s, and every daemon that has it is drained"
		}
		all = append(all, p)
	}
	return all, nil
}

// OfProcesses finds processes lost in the last day, drained ones, and those of different versions. live is
// the number of live processes.
func OfProcesses(ctx context.Context, db *dialect.DB, now time.Time) (all []Problem, live int, err error) {
	nodes, err := scheduler.Nodes(ctx, db, "", maxNodes)
	if err != nil {
		return nil, 0, err
	}
	nodes = scheduler.Processes(nodes)
	all = versions(nodes)
	c, err := admin.New(db, admin.Options{})
	if err != nil {
		return nil, 0, err
	}
	gone, err := c.Lost(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, node := range nodes {
		if node.Live {
			live++
		}
		if node.Live && !node.Drained.IsZero() && len(all) < Most {
			all = append(all, Problem{
				Of: Processes, Name: node.Name, what: "Process %s is drained", Since: node.Drained,
				Why: "it takes no new work, as " + plain.Cut(node.DrainedBy, 100) + " wants",
				Do:  "stop it, or have it take work again: dbcron node undrain " + argument(node.Name),
			})
		}
		if node.Live && node.Problem != "" && len(all) < Most {
			all = append(all, Problem{
				Of: Processes, Name: node.Name, Bad: true, what: "Process %s goes on, and something in it needs mending", change: "problem",
				Why: plain.Cut(node.Problem, 400), Do: "mend what it names; the log of that host may say more",
			})
		}
		if node.State == "gone" || node.Live || now.Sub(node.Until) > back || len(all) == Most {
			continue
		}
		all = append(all, Problem{
			Of: Processes, Name: node.Name, what: "Process %s was lost", Since: node.Until,
			Why: "it did not shut down, and no longer renews its lease",
			Do:  "see the log of that host: it was killed, or cut off from the database; " + whoHasWork(&node, nodes, gone),
		})
	}
	return all, live, nil
}

// whoHasWork says whether others do what a lost process did: serve its queues, and schedules with its tags.
func whoHasWork(lost *scheduler.Node, all []scheduler.Node, gone []admin.LostWorker) string {
	d := newDaemons(all)
	var lack []string
	for tag := range strings.SplitSeq(lost.Tags, ",") {
		if tag != "" && d.lack(tag) != nil {
			lack = append(lack, tag)
		}
	}
	var waits []string
	if queues := unservedBy(gone, lost.Name); len(queues) > 0 {
		waits = append(waits, "no worker serves "+plainly(len(queues), "queue ", "queues ")+some(queues)+" since")
	}
	if len(lack) > 0 {
		waits = append(waits, "no daemon has the "+plainly(len(lack), "tag ", "tags ")+some(lack)+" since")
	}
	switch {
	case len(waits) > 0:
		return strings.Join(waits, ", and ")
	case slices.ContainsFunc(all, func(n scheduler.Node) bool { return n.Live }):
		return "others have its work"
	}
	return "its work waits for another one"
}

// plainly returns the word for one or for several.
func plainly(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}
