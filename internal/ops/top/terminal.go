package top

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
)

// A Terminal shows views in a terminal and reacts to keys.
type Terminal struct {
	Look     *Look
	Interval time.Duration // between two looks
	In, Out  *os.File
	Plain    bool // without colors

	width, height int
	path          []place // the current place, and the way to it
	screen        *screen // as last read; nil: not yet
	trouble       string  // error of the last read
	selected, top int     // line numbers among the lines shown
	filter        string
	typing        bool // the filter is being typed
	ended         bool
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // alternate screen, no cursor
	leaveScreen = "\x1b[0m\x1b[?25h\x1b[?1049l"
)

// Run shows views until the user quits. It restores the terminal when it returns or panics.
func (t *Terminal) Run(ctx context.Context) error {
	before, err := term.MakeRaw(int(t.In.Fd()))
	if err != nil {
		return err
	}
	defer func() {
		_, _ = t.Out.WriteString(leaveScreen)
		_ = term.Restore(int(t.In.Fd()), before)
	}()
	if _, err := t.Out.WriteString(enterScreen); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, looks := make(chan string), make(chan *screen, 1)
	go t.read(ctx, keys)
	t.path = []place{{view: overviewView}}
	looking, again := false, instant.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if !looking && instant.Now() >= again {
			looking = true
			go t.lookAt(ctx, t.here(), looks)
		}
		t.draw()
		select {
		case <-ctx.Done():
			return nil
		case key, ok := <-keys:
			was := t.here()
			if t.press(key); t.ended || !ok {
				return nil
			}
			if t.here() != was {
				again = 0
			}
		case s := <-looks:
			looking = false
			again = instant.Now().Add(max(t.Interval, 5*s.took))
			if s.at != t.here() {
				again = 0
			}
			t.take(s)
		case <-tick.C: // the size may have changed
		}
	}
}

// lookAt reads a view. It shows errors and panics on the screen, so that the terminal is always restored.
func (t *Terminal) lookAt(ctx context.Context, at place, to chan<- *screen) {
	s := &screen{at: at, err: fmt.Errorf("the look was ended")}
	defer func() {
		if p := recover(); p != nil {
			s = &screen{at: at, err: fmt.Errorf("panic: %v", p)}
		}
		to <- s
	}()
	s = t.Look.at(ctx, at)
}

func (t *Terminal) here() place { return t.path[len(t.path)-1] }

// take stores a view that was read, if it is still the current one.
func (t *Terminal) take(s *screen) {
	if s.at != t.here() {
		return
	}
	t.trouble = ""
	if s.err != nil {
		t.trouble = strings.Join(strings.Fields(plain.Harmless(s.err.Error())), " ")
		if t.screen != nil && t.screen.at == s.at { // the last one is better than none
			return
		}
	}
	t.screen = s
}

// read reads keys until the terminal is closed. An escape sequence arrives at once.
func (t *Terminal) read(ctx context.Context, to chan<- string) {
	defer close(to)
	buffer := make([]byte, 64)
	for {
		n, err := t.In.Read(buffer)
		if err != nil || n == 0 {
			return
		}
		for _, key := range keysIn(string(buffer[:n])) {
			select {
			case to <- key:
			case <-ctx.Done():
				return
			}
		}
	}
}

// keysIn parses what a terminal has sent into keys: characters or names.
func keysIn(sent string) (keys []string) {
	for sent != "" {
		found := false
		for _, k := range [][2]string{
			{"\x1b[A", "up"},
			{"\x1bOA", "up"},
			{"\x1b[B", "down"},
			{"\x1bOB", "down"},
			{"\x1b[D", "back"},
			{"\x1bOD", "back"},
			{"\x1b[C", "enter"},
			{"\x1bOC", "enter"},
			{"\x1b[5~", "page up"},
			{"\x1b[6~", "page down"},
			{"\r", "enter"},
			{"\n", "enter"},
			{"\x7f", "delete"},
			{"\b", "delete"},
			{"\x03", "leave"},
			{"\x04", "leave"},
		} {
			if rest, ok := strings.CutPrefix(sent, k[0]); ok {
				keys, sent, found = append(keys, k[1]), rest, true
				break
			}
		}
		if found {
			continue
		}
		if len(sent) > 1 && sent[0] == '\x1b' && (sent[1] == '[' || sent[1] == 'O') { // skip unknown sequences
			end := strings.IndexFunc(sent[2:], func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				return keys
			}
			sent = sent[2+end+1:]
			continue
		}
		r := []rune(sent)[0]
		if r == '\x1b' {
			keys = append(keys, "back")
		} else if r >= ' ' {
			keys = append(keys, string(r))
		}
		sent = sent[len(string(r)):]
	}
	return keys
}

// press reacts to a key.
func (t *Terminal) press(key string) {
	if t.typing && t.typed(key) {
		return
	}
	shown := t.shown()
	switch key {
	case "leave", "q":
		t.ended = true
	case "up", "k":
		t.selected--
	case "down", "j":
		t.selected++
	case "page up":
		t.selected -= t.rows()
	case "page down", " ":
		t.selected += t.rows()
	case "/":
		t.typing = true
	case "enter":
		if t.selected < len(shown) && shown[t.selected].into.view != "" {
			t.enter(append(t.path, shown[t.selected].into))
		}
	case "back", "delete", "h":
		switch {
		case t.filter != "":
			t.filter = ""
		case len(t.path) > 1:
			t.enter(t.path[:len(t.path)-1])
		}
	default:
		if view, ok := map[string]string{
			"1": overviewView, "2": queuesView, "3": schedulesView, "4": runsView,
			"5": locksView, "6": daemonsView,
		}[key]; ok {
			t.enter([]place{{view: view}})
		}
	}
	t.selected = max(0, min(t.selected, len(t.shown())-1))
}

// typed handles a key for the filter, and reports whether it was one.
func (t *Terminal) typed(key string) bool {
	switch key {
	case "enter":
		t.typing = false
	case "back":
		t.typing, t.filter = false, ""
	case "delete":
		r := []rune(t.filter)
		t.filter = string(r[:max(0, len(r)-1)])
	case "leave", "up", "down", "page up", "page down":
		t.typing = false
		return false
	default:
		t.filter += key
	}
	t.selected, t.top = 0, 0
	return true
}

// enter goes to another place.
func (t *Terminal) enter(path []place) {
	t.path, t.selected, t.top, t.filter, t.screen, t.trouble = slices.Clone(path), 0, 0, "", nil, ""
}

// shown returns the lines that pass the filter: headings, and lines that contain its text.
func (t *Terminal) shown() []line {
	if t.screen == nil {
		return nil
	}
	if t.filter == "" {
		return t.screen.lines
	}
	var left []line
	for _, l := range t.screen.lines {
		if l.kind == headLine || l.text != "" && strings.Contains(strings.ToLower(l.text), strings.ToLower(t.filter)) {
			left = append(left, l)
		}
	}
	return left
}

// rows is the number of visible lines of a view.
func (t *Terminal) rows() int { return max(1, t.height-2) }

// draw writes the whole screen, in one write.
func (t *Terminal) draw() {
	width, height, err := term.GetSize(int(t.Out.Fd()))
	if err != nil || width < 1 || height < 1 {
		width, height = 80, 24
	}
	t.width, t.height = width, height
	lines := t.shown()
	t.top = max(0, min(t.top, t.selected, len(lines)-1))
	if t.selected >= t.top+t.rows() {
		t.top = t.selected - t.rows() + 1
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	t.put(&b, t.header(), headLine, false)
	for i := range t.rows() {
		if at := t.top + i; at < len(lines) {
			mark := "  "
			if at == t.selected {
				mark = "> "
			}
			t.put(&b, mark+lines[at].text, lines[at].kind, at == t.selected)
		} else {
			t.put(&b, "", plainLine, false)
		}
	}
	b.WriteString(t.cut(t.footer()) + "\x1b[K")
	_, _ = t.Out.WriteString(b.String())
}

func (t *Terminal) header() string {
	at := "dbcron top"
	switch {
	case t.screen == nil:
		return at + ": looking at " + t.here().view + " …"
	case t.trouble != "":
		return at + ": " + t.trouble
	}
	return fmt.Sprintf("%s: %s at %s UTC, looked at in %s", at, t.screen.title, t.screen.when.UTC().Format(time.TimeOnly),
		t.screen.took.Round(time.Millisecond))
}

func (t *Terminal) footer() string {
	if t.typing || t.filter != "" {
		return "/" + t.filter
	}
	return "1 overview  2 queues  3 schedules  4 runs  5 locks  6 daemons  / filter  q quit"
}

// put writes a line, cut to fit.
func (t *Terminal) put(b *strings.Builder, line string, of kind, selected bool) {
	line = t.cut(line)
	if style := map[kind]string{headLine: "\x1b[1m", goodLine: "\x1b[32m", oddLine: "\x1b[33m", badLine: "\x1b[31m"}[of]; !t.Plain &&
		(style != "" || selected) {
		if selected {
			style += "\x1b[7m"
		}
		line = style + line + "\x1b[0m"
	}
	b.WriteString(line + "\x1b[K\r\n")
}

// cut limits a line to one row of the terminal.
func (t *Terminal) cut(line string) string {
	if text.StringWidthWithoutEscSequences(line) <= t.width {
		return line
	}
	width := 0
	for i, r := range line {
		if width += text.RuneWidth(r); width > t.width-1 {
			return line[:i] + "…"
		}
	}
	return line
}
