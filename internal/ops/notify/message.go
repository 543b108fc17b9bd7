package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	outputsOf = 5        // troubles of a message that include their runs' output
	maxOutput = 16 << 10 // bytes of each
)

// A Trouble is a past or present problem of a schedule or a queue. Times are in µs.
type Trouble struct {
	Subject string `json:"subject"` // schedule, dead, behind or clock
	Name    string `json:"name"`
	Problem string `json:"problem"`
	Detail  string `json:"detail,omitempty"`
	Run     int64  `json:"run,omitempty"`
	Due     int64  `json:"due,omitempty"`
	Times   int64  `json:"times"`
	Begun   int64  `json:"begun"`
	Last    int64  `json:"last"`
	Well    int64  `json:"well,omitempty"` // when it recovered

	output, host, command string         // of the run and its schedule, read when the message is sent
	zone                  *time.Location // of the schedule
	link                  string         // to the page about it
}

// A Message is what one target is told: the payload of a job.
type Message struct {
	Target    string    `json:"target"`        // as people may see it
	Ref       string    `json:"ref,omitempty"` // of a target that they may not see: see reference
	At        int64     `json:"at"`            // µs
	Troubles  []Trouble `json:"troubles,omitempty"`
	Recovered []Trouble `json:"recovered,omitempty"`
	Failed    int       `json:"failed"`         // number of troubles, including unlisted ones
	Well      int       `json:"well"`           // number of recoveries, likewise
	Last      bool      `json:"last,omitempty"` // the last one for this hour
	Test      bool      `json:"test,omitempty"`
}

func (m *Message) addTrouble(x Trouble) {
	if m.Failed++; len(m.Troubles) < maxListed {
		m.Troubles = append(m.Troubles, x)
	}
}

func (m *Message) addRecovered(x Trouble) {
	if m.Well++; len(m.Recovered) < maxListed {
		m.Recovered = append(m.Recovered, x)
	}
}

// words says what is wrong, after the name.
var words = map[string]string{
	"failed": "failed", "timeout": "ran out of time", "lost": "was lost", "missed": "was missed", "late": "is late",
	"slow": "takes longer than usual", "given-up": "was given up",
	"dead": "has dead letters", "behind": "is behind",
	"clock": "went back",
}

// what describes the trouble in a few words. It makes invisible characters in names visible.
func (x *Trouble) what() string {
	return x.name() + " " + cmp.Or(words[x.Problem], x.Problem)
}

// Subject returns a one-line summary of the message.
func (m *Message) Subject() string {
	switch {
	case m.Test:
		return "[dbcron] a test message"
	case m.Failed == 1 && m.Well == 0:
		x := &m.Troubles[0]
		return "[dbcron] " + plain.Cut(x.what()+": "+x.Detail, 150)
	case m.Failed == 0 && m.Well == 1:
		return "[dbcron] " + m.Recovered[0].name() + " is well again"
	}
	var parts []string
	if m.Failed > 0 {
		parts = append(parts, plain.Plural(m.Failed, "problem", "problems")+" ("+firstNames(m.Troubles, m.Failed)+")")
	}
	if m.Well > 0 {
		parts = append(parts, plain.Number(m.Well)+" well again")
	}
	return "[dbcron] " + strings.Join(parts, ", ")
}

func (x *Trouble) name() string {
	switch x.Subject {
	case "schedule":
		return plain.Cut(x.Name, 80)
	case ofClock.subject:
		return "the clock of the " + plain.Cut(x.Name, 80)
	}
	return "queue " + plain.Cut(x.Name, 80)
}

func firstNames(all []Trouble, of int) string {
	var names []string
	for i := range all[:min(len(all), 3)] {
		names = append(names, plain.Cut(all[i].Name, 40))
	}
	if of > len(names) {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

func stamp(us int64) string { return time.UnixMicro(us).UTC().Format("2006-01-02 15:04:05 UTC") }

// local is stamp on the clocks of the schedule's zone, too.
func (x *Trouble) local(us int64) string {
	if x.zone == nil || x.zone == time.UTC {
		return stamp(us)
	}
	return time.UnixMicro(us).In(x.zone).Format("2006-01-02 15:04:05 MST") + ", " + stamp(us)
}

// Text returns the message for people.
func (m *Message) Text() string {
	if m.Test {
		return "This is a test message of dbcron notify test.\nWhen a schedule fails, the message is like this one, with the command's output.\n"
	}
	var b strings.Builder
	for i := range sorted(m.Troubles) {
		m.Troubles[i].write(&b)
	}
	if more := m.Failed - len(m.Troubles); more > 0 {
		fmt.Fprintf(&b, "… and %s: dbcron doctor, dbcron schedule list\n\n", plain.Plural(more, "more problem", "more problems"))
	}
	for i := range sorted(m.Recovered) {
		x := &m.Recovered[i]
		fmt.Fprintf(&b, "%s is well again, since %s\n", x.name(), stamp(x.Well))
		fmt.Fprintf(&b, "  it was in trouble from %s on, %s\n\n", stamp(x.Begun), plain.Plural(int(x.Times), "time", "times"))
	}
	if more := m.Well - len(m.Recovered); more > 0 {
		fmt.Fprintf(&b, "… and %s well again\n\n", plain.Plural(more, "more is", "more are"))
	}
	if m.Last {
		fmt.Fprintf(&b, "This was the last message of this hour; the next one has all that comes meanwhile (serve --notify-limit).\n")
	}
	return b.String()
}

func (x *Trouble) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s", x.what())
	if x.Detail != "" {
		fmt.Fprintf(b, ": %s", plain.Cut(x.Detail, 1000))
	}
	b.WriteString("\n")
	if x.Due != 0 {
		fmt.Fprintf(b, "  slot       %s\n", x.local(x.Due))
	}
	for _, line := range [][2]string{{"host", x.host}, {"command", x.command}, {"page", x.link}} {
		if line[1] != "" {
			fmt.Fprintf(b, "  %-10s %s\n", line[0], line[1])
		}
	}
	if x.Subject == "schedule" && x.Times > 1 {
		fmt.Fprintf(b, "  failures   %d since %s\n", x.Times, stamp(x.Begun))
	}
	if x.Well != 0 {
		fmt.Fprintf(b, "  meanwhile  it is well again, since %s\n", stamp(x.Well))
	}
	switch {
	case x.Run != 0:
		fmt.Fprintf(b, "  more       dbcron schedule output %d\n", x.Run)
	case x.Subject == "schedule":
		fmt.Fprintf(b, "  more       dbcron schedule explain %s\n", plain.Clean(x.Name))
	case x.Subject == ofClock.subject:
		fmt.Fprintf(b, "  more       dbcron doctor\n")
	default:
		fmt.Fprintf(b, "  more       dbcron queue show, dbcron job list --state dead\n")
	}
	if x.output != "" {
		b.WriteString("\n")
		for line := range strings.Lines(x.output) {
			b.WriteString("    " + line)
		}
		if !strings.HasSuffix(x.output, "\n") {
			b.WriteString("\n")
		}
	}
	b.WriteString("\n")
}

// read adds what the tables say of the first troubles: where a run was, what it ran and has written. It may have left the history.
func (n *Notifier) read(ctx context.Context, m *Message) error {
	for i := range m.Troubles[:min(len(m.Troubles), outputsOf)] {
		x := &m.Troubles[i]
		if err := n.readSchedule(ctx, x); err != nil {
			return err
		}
		if x.Run == 0 {
			continue
		}
		run, err := scheduler.GetRun(ctx, n.db, x.Run)
		switch {
		case errors.Is(err, scheduler.ErrNoRun):
			continue
		case err != nil:
			return err
		}
		x.output = excerpt(plain.Clean(run.Output))
		host, _, _ := strings.Cut(run.By, ":")
		x.host = plain.Cut(host, 100)
	}
	return nil
}

// readSchedule adds what a schedule runs, in which zone, and where its page is, or the queue's.
func (n *Notifier) readSchedule(ctx context.Context, x *Trouble) error {
	page := strings.TrimSuffix(n.opt.Link, "/")
	switch {
	case page == "":
	case x.Run != 0:
		x.link = fmt.Sprintf("%s/run?id=%d", page, x.Run)
	case x.Subject == "schedule":
		x.link = page + "/schedule?name=" + url.QueryEscape(x.Name)
	case x.Subject == ofClock.subject:
		x.link = page + "/"
	default:
		x.link = page + "/queue?name=" + url.QueryEscape(x.Name)
	}
	if x.Subject != "schedule" {
		return nil
	}
	s, err := scheduler.Get(ctx, n.db, x.Name)
	if errors.Is(err, scheduler.ErrNotFound) {
		return nil
	}
	x.command = plain.Line(s.Command, 200)
	if plan, bad := s.Slots(); bad == nil {
		x.zone = plan.Location()
	}
	return err
}

// excerpt returns the head and tail of a long text.
func excerpt(text string) string {
	if len(text) <= maxOutput {
		return text
	}
	head := strings.ToValidUTF8(text[:maxOutput/2], "")
	tail := strings.ToValidUTF8(text[len(text)-maxOutput/2:], "")
	return fmt.Sprintf("%s\n… %s bytes are left out …\n%s", head, plain.Number(len(text)-maxOutput), tail)
}
