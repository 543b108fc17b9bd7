package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

var minutes = flag.Int("minutes", 0, "how long each test of daemons takes; 0: as long as CI has time for")

// A plan says what a test does to its daemons, and when, counted from the start.
type plan struct {
	daemons int
	lease   time.Duration
	kill    time.Duration // SIGKILL of the busiest
	stop    time.Duration // SIGSTOP of the busiest that is left
	resume  time.Duration // SIGCONT of that one
	end     time.Duration
}

func planned(daemons int) plan {
	if *minutes == 0 {
		return plan{daemons, 4 * time.Second, 6 * time.Second, 14 * time.Second, 22 * time.Second, 28 * time.Second}
	}
	end := time.Duration(*minutes) * time.Minute
	return plan{daemons, 30 * time.Second, end / 6, end / 4, end/4 + 90*time.Second, end}
}

// Three daemons share a database, or two a file, and one is killed, and one
// stopped for longer than its lease. Each slot of each schedule is accounted
// for once, and nothing that the daemons started outlives its lease.
func TestDaemonsKilledAndStopped(t *testing.T) {
	binary := build(t)
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		daemons := 3
		if db.Dialect.SkipLocked == "" {
			daemons = 2 // one file, one writer
		}
		r := &rig{t: t, db: db, plan: planned(daemons), binary: binary, dir: t.TempDir(), mark: "FAULTS_MARK=" + filepath.Base(t.TempDir()) + t.Name()}
		r.run()
	})
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "dbcron")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/dbcron")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// A rig is one run of the test on one database.
type rig struct {
	t      *testing.T
	db     *dbtest.DB
	plan   plan
	binary string
	dir    string
	mark   string // in the environment of all commands, and of what they start
}

// crontab has fifty schedules. Each command holds a lock while it runs, and
// says so if another run of its schedule has it; some leave a process behind.
func (r *rig) crontab() string {
	name, value, _ := strings.Cut(r.mark, "=")
	var text strings.Builder
	fmt.Fprintf(&text, "%s=%s\nDIR=%s\n", name, value, r.dir)
	for i, spec := range []string{"@every 1s", "@every 2s", "@every 5s", "@every 10s", "* * * * *"} {
		for n := range 10 {
			work := "true"
			switch n {
			case 0:
				work = "sleep 0.3"
			case 1:
				work = "(trap '' TERM HUP; sleep 1000) & sleep 0.1"
			case 2:
				work = fmt.Sprintf("sleep %d", i+1) // at 1s and 2s: slots come while it runs
			case 3:
				work = "trap '' TERM; setsid sleep 1000 & sleep 0.2"
			case 4, 5, 6:
				// Longer than a lease, so that some run when their daemon is killed or
				// stopped, and would go on.
				work = fmt.Sprintf("test $DBCRON_ATTEMPT -gt 1 || sleep %.0f", r.plan.lease.Seconds()*2.5)
			}
			fmt.Fprintf(&text, "# name: s%d-%d\n%s exec 9>$DIR/$DBCRON_SCHEDULE.lock; flock -n 9 || echo $DBCRON_SCHEDULE >>$DIR/overlap; %s\n",
				i, n, spec, work)
		}
	}
	return text.String()
}

func (r *rig) run() {
	t := r.t
	file := filepath.Join(r.dir, "crontab")
	if err := os.WriteFile(file, []byte(r.crontab()), 0o600); err != nil {
		t.Fatal(err)
	}
	var daemons []*daemon
	for i := range r.plan.daemons {
		daemons = append(daemons, r.start(fmt.Sprintf("d%d", i), file))
	}
	begun := time.Now() //nolint:forbidigo // the test's own timetable
	at := func(d time.Duration) {
		select {
		case <-time.After(d - time.Since(begun)):
		case <-t.Context().Done():
		}
	}
	kill := func(d *daemon) {
		d.signal(syscall.SIGKILL)
		<-d.done
		r.gone(d, "after its daemon was killed", 10*time.Second)
	}
	stop := func(d *daemon) {
		d.signal(syscall.SIGSTOP)
		r.gone(d, "after the lease of its stopped daemon", r.plan.lease+time.Second)
		at(r.plan.resume)
		d.signal(syscall.SIGCONT)
	}
	alive := daemons
	if r.plan.daemons > 2 {
		at(r.plan.kill)
		alive = r.harm(alive, kill)
		at(r.plan.stop)
		r.harm(alive, stop)
	} else { // the one is stopped, goes on, and is killed: the other must be left
		at(r.plan.kill)
		alive = r.harm(alive, func(d *daemon) {
			stop(d)
			kill(d)
		})
	}
	at(r.plan.end)
	r.settle()
	for _, d := range alive {
		d.stop()
	}
	r.account()
	if left := processes(r.mark); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if overlaps, err := os.ReadFile(filepath.Join(r.dir, "overlap")); err == nil {
		t.Errorf("runs of one schedule overlapped: %s", strings.Fields(string(overlaps)))
	}
	for _, d := range daemons {
		d.report()
	}
}

// harm does something to the daemon that has the most commands running, and
// returns the others.
func (r *rig) harm(daemons []*daemon, how func(*daemon)) []*daemon {
	r.t.Helper()
	most, commands := 0, 0
	for i, d := range daemons {
		if n := len(descendants(children(d.cmd.Process.Pid), r.mark)); n > commands {
			most, commands = i, n
		}
	}
	if commands == 0 {
		r.t.Error("no daemon has anything to lose: the test shows nothing")
	}
	how(daemons[most])
	return slices.Delete(slices.Clone(daemons), most, most+1)
}

// settle waits until no run of a dead daemon waits for its lease to end.
func (r *rig) settle() {
	r.eventually("runs of dead daemons are taken over", 2*r.plan.lease+10*time.Second, func() bool {
		var waiting int
		r.db.Scan(r.t, `SELECT COUNT(*) FROM {prefix}run WHERE next_exec < {now}`, nil, &waiting)
		return waiting == 0
	})
}

func (r *rig) eventually(what string, within time.Duration, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(r.t.Context(), within)
	defer cancel()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Errorf("not within %v: %s", within, what)
			return
		}
	}
}

// gone fails the test if commands of a daemon are there after a time.
func (r *rig) gone(d *daemon, when string, within time.Duration) {
	r.t.Helper()
	r.eventually("no command is left "+when, within, func() bool { return len(descendants(d.mine(), r.mark)) == 0 })
}

// A daemon is a dbcron serve.
type daemon struct {
	rig  *rig
	node string
	cmd  *exec.Cmd
	log  strings.Builder
	done chan struct{}

	seen map[int]bool // guardians that it has started
}

// grace is as long as the longest command, so that all that the last daemon has
// begun ends well.
func (r *rig) grace() time.Duration { return 3 * r.plan.lease }

func (r *rig) start(node, crontab string) *daemon {
	r.t.Helper()
	d := &daemon{rig: r, node: node, done: make(chan struct{}), seen: map[int]bool{}}
	d.cmd = exec.CommandContext(context.Background(), r.binary, "serve", "--crontab", crontab, "--node", node,
		"--lease", r.plan.lease.String(), "--grace", r.grace().String(), "--log-format", "json")
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "DBCRON_DATABASE_URL=" + r.db.URL}
	d.cmd.Stderr = &d.log
	if err := d.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { _ = d.cmd.Wait(); close(d.done) }()
	r.t.Cleanup(func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Process.Signal(syscall.SIGCONT); <-d.done })
	return d
}

func (d *daemon) signal(sig os.Signal) {
	d.rig.t.Helper()
	for _, pid := range children(d.cmd.Process.Pid) {
		d.seen[pid] = true
	}
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.rig.t.Errorf("%s: %v: %v", d.node, sig, err)
	}
}

// mine lists the guardians that the daemon had when it was last signalled, and
// has now.
func (d *daemon) mine() []int {
	var pids []int
	for pid := range d.seen {
		pids = append(pids, pid)
	}
	return append(pids, children(d.cmd.Process.Pid)...)
}

// stop ends a daemon as an operator does, and expects it to end well.
func (d *daemon) stop() {
	d.rig.t.Helper()
	d.signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(d.rig.grace() + 20*time.Second):
		d.rig.t.Errorf("%s did not end after SIGTERM", d.node)
		_ = d.cmd.Process.Kill()
		<-d.done
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.rig.t.Errorf("%s: exit code %d", d.node, code)
	}
}

// report shows what a daemon said beside its runs, if the test failed.
func (d *daemon) report() {
	if !d.rig.t.Failed() {
		return
	}
	for line := range strings.Lines(d.log.String()) {
		if !strings.Contains(line, `"msg":"run"`) || strings.Contains(line, `"lost"`) {
			d.rig.t.Logf("%s: %s", d.node, strings.TrimSpace(line))
		}
	}
}
