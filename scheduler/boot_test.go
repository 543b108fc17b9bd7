package scheduler

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
)

// nodesOf lists which daemon has had each run, in the order of the slots.
func nodesOf(t *testing.T, db *dbtest.DB, name string) string {
	t.Helper()
	var all []string
	for _, r := range allRuns(t, db, name) {
		node, _, _ := strings.Cut(r.By, ":")
		all = append(all, node+" "+r.Cause+" "+r.State)
	}
	return strings.Join(all, ", ")
}

func edit(t *testing.T, db *dbtest.DB, name string, f func(*Schedule)) {
	t.Helper()
	s := stored(t, db, name)
	f(&s)
	if err := Edit(t.Context(), db.DB, s); err != nil {
		t.Fatal(err)
	}
}

func onHost(t *testing.T, db *dbtest.DB, node, boot string) *Scheduler {
	t.Helper()
	return daemon(t, db, Options{Node: node, BootID: boot})
}

// What has the spec @reboot runs once for each start of each host, whatever daemons it has and
// however often they start. What is added later waits for the next start.
func TestRebootOncePerStart(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "warm", "@reboot")
		addWith(t, db, "tagged", "@reboot", Policy{})
		edit(t, db, "tagged", func(s *Schedule) { s.Tag = "other" })
		add(t, db, "paused", "@reboot")
		if err := Pause(t.Context(), db.DB, "paused", "test"); err != nil {
			t.Fatal(err)
		}
		for _, d := range []*Scheduler{onHost(t, db, "a1", "A"), onHost(t, db, "a2", "A"), onHost(t, db, "b1", "B"), onHost(t, db, "a1", "A")} {
			stepped(t, d)
		}
		want := "a1 boot ok, b1 boot ok"
		if got := nodesOf(t, db, "warm"); got != want {
			t.Errorf("two hosts, with several daemons: %s", got)
		}
		add(t, db, "later", "@reboot")
		db.Advance(t, time.Hour)
		if err := Resume(t.Context(), db.DB, "paused"); err != nil {
			t.Fatal(err)
		}
		stepped(t, onHost(t, db, "b2", "B")) // runs what came meanwhile: nobody has noted it
		here := onHost(t, db, "a3", "A")
		if err := here.lookAtBoot(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		stepped(t, here)
		if got := nodesOf(t, db, "later"); got != "b2 boot ok" {
			t.Errorf("one that came later: %s", got)
		}
		stepped(t, onHost(t, db, "a4", "A-again"))
		if got := nodesOf(t, db, "warm"); got != want+", a4 boot ok" {
			t.Errorf("after a start: %s", got)
		}
		if got := nodesOf(t, db, "later"); got != "b2 boot ok, a4 boot ok" {
			t.Errorf("one that came later, after a start: %s", got)
		}
		wantRuns(t, db, "tagged", 0)
	})
}

// The run belongs to its host: another attempt begins there, whether it failed or was cut off.
func TestRebootStaysOnItsHost(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addCommand(t, db, "fails", "@reboot", "exit 1")
		edit(t, db, "fails", func(s *Schedule) { s.MaxAttempts = 2; s.RetryDelay = time.Second })
		a, a2, b := onHost(t, db, "a1", "A"), onHost(t, db, "a2", "A"), onHost(t, db, "b1", "B")
		stepped(t, a)
		stepped(t, b)
		db.Advance(t, time.Minute)
		edit(t, db, "fails", func(s *Schedule) { s.Tag = "other" }) // what waits stays with the host
		edit(t, db, "fails", func(s *Schedule) { s.Tag = "default" })
		stepped(t, b)
		stepped(t, a2)
		if got, want := nodesOf(t, db, "fails"), "a1 boot failed, a2 boot failed, b1 boot failed, b1 boot failed"; got != want {
			t.Errorf("%s; want %s", got, want)
		}

		add(t, db, "cut", "@reboot")
		a, b = onHost(t, db, "a3", "A"), onHost(t, db, "b2", "B")
		if err := a.lookAtBoot(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if held, _, err := a.takeOver(t.Context(), bootLane("default", "A"), 10); err != nil || len(held) != 1 {
			t.Fatalf("%d begin, %v", len(held), err)
		}
		db.Advance(t, time.Hour)
		stepped(t, b)
		stepped(t, onHost(t, db, "a4", "A"))
		if got, want := nodesOf(t, db, "cut"), "a3 boot lost, a4 boot ok, b2 boot ok"; got != want {
			t.Errorf("%s; want %s", got, want)
		}
	})
}

// What a host has not ended when it started anew is ended by the others, once nobody has seen that start for a while.
func TestRebootOfAHostThatIsGone(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "runs", "@reboot")
		add(t, db, "waits", "@reboot")
		a, b := onHost(t, db, "a", "A"), onHost(t, db, "b", "B")
		if err := a.lookAtBoot(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if held, _, err := a.takeOver(t.Context(), bootLane("default", "A"), 1); err != nil || len(held) != 1 {
			t.Fatalf("%d begin, %v", len(held), err)
		}
		ids, _, err := OpenRuns(t.Context(), db.DB, 10)
		if err != nil || len(ids) != 2 {
			t.Errorf("open are %v, %v", ids, err)
		}
		states := func() string {
			var all []string
			for _, r := range allRuns(t, db, "") {
				all = append(all, r.State)
			}
			return strings.Join(all, " ")
		}
		db.Advance(t, time.Hour)
		if err := a.lookAtBoot(t.Context(), false); err != nil { // it is there
			t.Fatal(err)
		}
		if err := b.endOfGone(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := states(); got != "running waiting" && got != "waiting running" {
			t.Errorf("while the host is there: %s", got)
		}
		db.Advance(t, hostGone+time.Minute)
		if err := b.lookAtBoot(t.Context(), true); err != nil { // another host is no sign of it
			t.Fatal(err)
		}
		if err := b.endOfGone(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := states()
		if strings.Count(got, "failed") != 1 || strings.Count(got, "cancelled") != 1 || strings.Count(got, "waiting") != 2 {
			t.Errorf("when it is gone: %s", got)
		}
		db.Advance(t, bootForget+time.Hour)
		if err := b.endOfGone(t.Context()); err != nil {
			t.Fatal(err)
		}
		var left int
		db.Scan(t, `SELECT COUNT(*) FROM {prefix}schedule_boot`, nil, &left)
		if left != 0 {
			t.Errorf("%d are left", left)
		}
	})
}

// Daemons of one host that start in the same moment run it once. Those that meet another one that begins it come back,
// and that is nothing to warn of.
func TestRebootAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		names := []string{"cold", "cool", "hot", "warm"}
		for _, name := range names {
			add(t, db, name, "@reboot")
		}
		var all, connected sync.WaitGroup
		var logs [6]bytes.Buffer
		far := db.Another(t, dialect.Options{MaxConns: len(logs)})
		connected.Add(len(logs))
		for i := range logs {
			d := daemon(t, far, Options{Node: fmt.Sprint("d", i), BootID: "A", Logger: textLogger(&logs[i])})
			all.Go(func() {
				c, err := far.Pool().Conn(t.Context()) // else the first one has done all when the last one has connected
				connected.Done()
				if err != nil {
					t.Error(err)
					return
				}
				connected.Wait()
				_ = c.Close()
				for !d.booted {
					if err := d.prepare(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		for _, name := range names {
			wantRuns(t, db, name, 1)
		}
		for i := range logs {
			if text := logs[i].String(); text != "" {
				t.Errorf("it said %s", text)
			}
		}
	})
}

// A stranger has locked a schedule with @reboot. The others begin, and so does this one when it is let go. What lasts is logged.
func TestRebootBesideAStranger(t *testing.T) {
	several(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "held", "@reboot")
		add(t, db, "warm", "@reboot")
		var log bytes.Buffer
		d := daemon(t, db, Options{BootID: "A", Logger: textLogger(&log)})
		prepare := func(booted bool, said string) {
			t.Helper()
			must(t, d.prepare(t.Context()))
			if d.booted != booted || !strings.Contains(log.String(), said) || said == "" && log.Len() > 0 {
				t.Errorf("booted: %t, and it said %q", d.booted, log.String())
			}
			log.Reset()
		}
		tx := strangersTx(t, db)
		strangerHolds(t, db, tx, "schedule", "reason = 'mine'", "name = 'held'")
		prepare(false, "")
		wantRuns(t, db, "held", 0)
		wantRuns(t, db, "warm", 1)
		d.bootHeld = d.bootHeld.Add(-bootPatience)
		prepare(false, "another transaction has locked the row of the schedule held")
		must(t, tx.Rollback())
		prepare(true, "works again")
		wantRuns(t, db, "held", 1)
		wantRuns(t, db, "warm", 1)
	})
}

// The kernel tells one start from another.
func TestBootID(t *testing.T) {
	opt, err := Options{}.filled()
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" {
		t.Skip("known on Linux, and looked at there")
	}
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || opt.BootID == "" || opt.BootID != strings.TrimSpace(string(data)) {
		t.Errorf("%q, %v", opt.BootID, err)
	}
	if _, err := (Options{BootID: "a b"}).filled(); err == nil {
		t.Error("blanks in an id were accepted")
	}
}
