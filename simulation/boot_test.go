package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// boots are the starts of hosts on which daemons run, two on each, by their ids. The world's mutex guards them.
type boots map[string]*boot

// A boot is a start of a host.
type boot struct {
	host  string
	n     int
	since time.Time // when a daemon of it was well and had begun to look after @reboot; zero: none was
	over  bool
}

// of returns the id of the present start of the host of a daemon that begins. If no other daemon of the host lives,
// the host may have been started anew since the last one.
func (b boots) of(p *Process) (id string) {
	var number int
	if _, err := fmt.Sscanf(p.Name, "daemon-%d", &number); err != nil {
		panic(err)
	}
	host := fmt.Sprint("host", number/2)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	n, alone := 1, true
	for _, h := range p.w.hosts {
		if h.name == fmt.Sprint("daemon-", number^1) && h.now != nil && !h.now.hasEnded() {
			alone = false
		}
	}
	var last *boot
	for _, o := range b {
		if o.host == host && o.n >= n {
			n, last = o.n, o
		}
	}
	if last != nil && alone && p.Dice.once(2) {
		n++
		last.over = true
		p.w.Reached("a host starts anew")
	} else if last != nil {
		p.w.Reached("a host's start had its run already")
	}
	id = fmt.Sprintf("%s.%d", host, n)
	if b[id] == nil {
		b[id] = &boot{host: host, n: n}
	}
	return id
}

// look notes which starts of hosts have had a daemon that was well for so long that it must have looked. The world's
// mutex is held.
func (b boots) look(w *World) {
	for _, h := range w.hosts {
		p := h.now
		if p == nil || !strings.HasPrefix(h.name, "daemon-") || p.hasEnded() || time.Since(p.began) < 10*time.Second || !p.sound(p.began) {
			continue
		}
		var number int
		_, _ = fmt.Sscanf(p.Name, "daemon-%d", &number)
		for _, o := range b {
			if o.host == fmt.Sprint("host", number/2) && !o.over && o.since.IsZero() {
				o.since = p.began
			}
		}
	}
}

// forget has it be long ago that a start of a host was seen that is over. Its runs end then, after ten minutes.
func (b boots) forget(w *World) error {
	var over []string
	w.mu.Lock()
	for id, o := range b {
		if o.over {
			over = append(over, "'"+id+"'")
		}
	}
	w.mu.Unlock()
	if len(over) == 0 {
		return nil
	}
	slices.Sort(over)
	_, err := w.Operator.Pool().ExecContext(w.Free(), `UPDATE dbcron_schedule_boot SET seen_at = '2026-01-01 00:00:00.000'
		WHERE seen_at > '2026-01-01 00:00:00.000' AND boot IN (`+strings.Join(over, ", ")+`)`)
	return err
}

// check looks whether each start of a host has had its runs, once, on that host.
func (b boots) check(w *World) error {
	type slots map[string]bool
	had := map[string]slots{} // by schedule and start
	err := eachRow(w, `SELECT schedule, lane, due_at, attempt, state, exec_by FROM dbcron_run WHERE cause = 'boot' ORDER BY id`, func(scan func(...any) error) error {
		var schedule, lane, due, state, by string
		var attempt int
		if err := scan(&schedule, &lane, &due, &attempt, &state, &by); err != nil {
			return err
		}
		id := strings.TrimPrefix(lane, "default boot ")
		words := []string{schedule + " ", `"` + schedule + `"`, id}
		o := b[id]
		if o == nil {
			w.Violate("boot", words, "%s has a run for %q, which is no start of a host", schedule, id)
			return nil
		}
		if had[schedule+" "+id] == nil {
			had[schedule+" "+id] = slots{}
		}
		had[schedule+" "+id][due] = true
		node, _, _ := strings.Cut(by, ":")
		var number int
		if _, err := fmt.Sscanf(node, "daemon-%d", &number); err == nil && o.host != fmt.Sprint("host", number/2) {
			w.Violate("boot", words, "attempt %d of %s for %s was begun by %s", attempt, schedule, id, by)
		}
		if attempt > 1 && state == "ok" {
			w.count("a run of a host's start is tried again")
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id, o := range b {
		words := []string{chainBoot + " ", `"` + chainBoot + `"`, id}
		switch n := len(had[chainBoot+" "+id]); {
		case n > 1:
			w.Violate("boot", words, "%s has run %d times for %s", chainBoot, n, id)
		case n == 0 && !o.since.IsZero():
			w.Violate("boot", words, "%s has not run for %s, of which a daemon was well", chainBoot, id)
		}
	}
	return nil
}
