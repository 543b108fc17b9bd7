// Package crontab reads and writes files in the format of crontab(5), as
// Debian's cron reads them. It turns text into entries and back: it runs nothing
// and reads no clock.
//
// A line is blank, a comment (its first character that is not a blank is #), a
// setting NAME=VALUE, or an entry: five fields or a macro (see cronspec), then
// a command. Settings hold for the entries below them.
//
// Differences from Debian's cron:
//
//   - CRON_TZ is the zone of the specs below it. TZ is a variable like others.
//   - LOGNAME cannot be set: cron reads such a line and ignores it.
//   - MAILTO is an ordinary variable. The caller decides what it means.
//   - A comment "# name: NAME" directly above an entry names it. Elsewhere it is a comment like others, of which Warnings tells.
//   - A comment may be in any encoding; all else is UTF-8.
//   - Comments directly above an entry are its Description, from the last one on that is empty, a rule, a header or an entry.
//   - A - before a first field that is * or */n, as in SUSE's crontab, is accepted: cronie does not log such lines.
//   - A comment "# dbcron: NAME=VALUE NAME=VALUE" directly above an entry holds options
//     for it, such as timeout=1h; cron ignores it. Quotes keep blanks in a value.
//   - The last line needs no newline; CRLF and a byte order mark are accepted.
//   - Lines may have 64 KiB. Cron refuses commands of 999 bytes, and cuts
//     settings there.
//   - "NAME=" is an empty value, as NAME="" is. Quotes keep blanks on both sides.
//   - @reboot is what runs once after each start of each host; "@every DURATION" is accepted.
//   - What cron misinterprets or never runs is refused: 0~30, *-5, 5-1, 30 February, and
//     a step larger than its range, such as */61. So is a command that begins with what would be
//     a sixth field, since other formats have one for the second or the year.
//
// System crontabs, /etc/crontab and the files of /etc/cron.d, have one more column
// before the command: the user that it runs as. Nothing in a line tells the two
// formats apart, and Parse would take the user for the command. ParseSystem reads
// system crontabs, IsSystem knows some of them by their path, and Doubt those that may be ones.
package crontab

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

const (
	maxFile     = 16 << 20 // bytes
	maxLine     = 64 << 10 // bytes
	maxName     = 200      // characters
	maxUser     = 64       // characters
	maxSettings = 1000     // each entry has all of them

	blanks = " \t"
	mark   = "\ufeff" // the byte order mark
)

// Reboot is the Spec of a line that runs when the host starts.
const Reboot = "@reboot"

// An Entry is one line of a crontab that says when to run what.
type Entry struct {
	Line int    // where it stands in the file; the first line is 1
	Name string // from the comment "# name: NAME" above it; "" if there is none

	// Key identifies the entry in the file, and stays the same when other parts of the file
	// change. It is "name:NAME", or else "line:" and a hash of spec, user, command and input,
	// followed by "#2", "#3" for repetitions.
	Key string

	Spec    string // with single spaces between the fields
	Zone    string // the value of CRON_TZ; "" if there is none
	User    string // user that runs the command, in a system crontab; otherwise ""
	Command string // up to the first %, with \% replaced by % and \\ by \

	// Stdin is the command's input: what follows the first %, with further ones
	// replaced by newlines and \% by %. As with cron, it ends with a newline,
	// unless it is empty.
	Stdin string

	// Description is what the comments directly above the entry say, on one line of up to 1000 characters.
	Description string

	// Options are those of the comments "# dbcron: NAME=VALUE" above it. The caller knows the
	// valid names and values.
	Options []Option

	// Env has the settings in force, "NAME=VALUE", in the order of the file. Each name occurs
	// once, with its last value. CRON_TZ is not included. Entries share Env: do not change it.
	Env []string
}

// An Option is a name and a value for one entry.
type Option struct {
	Name, Value string
	Line        int // in the file, from 1
}

// Parse reads a user's crontab. It uses the file's name in messages, and refuses a
// file that is a system crontab by its path. Each check, if any, says what is wrong with an option.
//
// It returns all entries or an error, which joins the errors of all lines. Each of them is one line,
// "file:line: what is wrong; what to do".
func Parse(file string, data []byte, checks ...func(Option) error) ([]Entry, error) {
	if IsSystem(file) {
		return nil, fmt.Errorf("%s:1: this is a system crontab, with a column for the user; read it as one, or use a copy without that column", file)
	}
	p := newParser()
	p.checks = checks
	return parse(file, data, p)
}

// ParseSystem reads a system crontab as Parse reads a user's: each entry has a User.
func ParseSystem(file string, data []byte, checks ...func(Option) error) ([]Entry, error) {
	p := newParser()
	p.system, p.checks = true, checks
	return parse(file, data, p)
}

func parse(file string, data []byte, p *parser) ([]Entry, error) {
	data = bytes.TrimPrefix(data, []byte(mark))
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s:1: the file has %d bytes; use at most %d", file, len(data), maxFile)
	}
	for line := range bytes.Lines(data) {
		p.line++
		line = bytes.TrimSuffix(line, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		p.readLine(string(line))
		p.continued = bytes.HasSuffix(bytes.TrimRight(line, blanks), []byte(`\`)) && !bytes.HasPrefix(bytes.TrimLeft(line, blanks), []byte("#"))
	}
	p.dropName()
	if len(p.problems) == 0 {
		return p.entries, nil
	}
	slices.SortStableFunc(p.problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, problem := range p.problems {
		errs = append(errs, fmt.Errorf("%s:%d: %w", file, problem.line, problem.err))
	}
	return nil, errors.Join(errs...)
}

// IsSystem reports, by its path alone, whether a file is a system crontab: /etc/crontab, or a file in
// /etc/cron.d.
func IsSystem(file string) bool {
	file = path.Clean(file)
	return file == "/etc/crontab" || path.Dir(file) == "/etc/cron.d"
}

type parser struct {
	system   bool // entries name a user
	checks   []func(Option) error
	line     int // of the current line
	entries  []Entry
	problems []problem
	warnings []problem

	continued bool // the line before ends with a backslash

	env  []string // replaced, never modified: entries share it
	zone string

	name     string   // from a comment, for the next entry
	nameLine int      // 0: no comment is waiting for its entry
	options  []Option // from comments, likewise
	about    string   // from comments, likewise
	named    map[string]int
	repeats  map[string]int
}

type problem struct {
	line int
	err  error
}

func newParser() *parser { return &parser{named: map[string]int{}, repeats: map[string]int{}} }

func (p *parser) fail(err error) { p.problems = append(p.problems, problem{p.line, err}) }

func (p *parser) readLine(line string) {
	text := strings.TrimLeft(line, blanks)
	switch {
	case len(line) > maxLine:
		p.fail(fmt.Errorf("the line has %d bytes; use at most %d, or call a script", len(line), maxLine))
		p.nameLine, p.options, p.about = 0, nil, ""
	case !utf8.ValidString(line) && strings.HasPrefix(text, "#") && !isOurs(text):
		p.describe(text) // it was saved before UTF-8, as those around it
	case !utf8.ValidString(line):
		p.fail(errors.New("the line is not UTF-8; save the file as UTF-8"))
		p.nameLine, p.options, p.about = 0, nil, ""
	case strings.ContainsRune(line, 0):
		p.fail(errors.New("the line holds a NUL; remove it"))
		p.nameLine, p.options, p.about = 0, nil, ""
	case text == "":
		p.dropName()
	case text[0] == '#':
		p.readComment(text)
	case isSetting(text):
		p.dropName()
		p.readSetting(text)
	default:
		p.readEntry(text)
	}
}

// isOurs reports whether a comment is one that means something.
func isOurs(text string) bool {
	text = strings.TrimLeft(text[1:], blanks)
	return strings.HasPrefix(text, "dbcron:") || strings.HasPrefix(text, "name:")
}

func (p *parser) readComment(text string) {
	if options, ok := strings.CutPrefix(strings.TrimLeft(text[1:], blanks), "dbcron:"); ok {
		p.readOptions(options)
		return
	}
	name, ok := strings.CutPrefix(strings.TrimLeft(text[1:], blanks), "name:")
	if !ok {
		p.describe(text)
		return
	}
	p.dropOnlyName() // of two
	name = strings.Trim(name, blanks)
	switch {
	case name == "": // an ordinary comment
	case utf8.RuneCountInString(name) > maxName:
		p.fail(fmt.Errorf("the name has %d characters; use at most %d", utf8.RuneCountInString(name), maxName))
	case strings.ContainsFunc(name, unicode.IsControl):
		p.fail(fmt.Errorf("the name %q holds a control character; remove it", name))
	case strings.TrimSpace(name) != name:
		p.fail(fmt.Errorf("the name %+q begins or ends with a space; remove it", name))
	default:
		p.name, p.nameLine = name, p.line
	}
}

// dropName reports options that no entry follows: ignoring them would leave the intended entry without them. It warns of a
// name, which may be an ordinary comment.
func (p *parser) dropName() {
	p.about = ""
	if len(p.options) > 0 {
		err := errors.New("the options belong to no entry; put them directly above one")
		p.problems = append(p.problems, problem{p.options[0].Line, err})
		p.options = nil
	}
	p.dropOnlyName()
}

func (p *parser) dropOnlyName() {
	if p.nameLine > 0 {
		p.warn(p.nameLine, fmt.Sprintf("the name %q belongs to no entry; to name one, put it directly above", p.name))
	}
	p.nameLine = 0
}

func (p *parser) readEntry(text string) {
	entry := Entry{Line: p.line, Zone: p.zone, Env: p.env, Description: p.about, Options: p.options}
	p.options, p.about = nil, ""
	if p.nameLine > 0 {
		entry.Name = p.name
		p.nameLine = 0
	}
	if strings.HasPrefix(text, "-*") {
		text = text[1:]
	}
	count := 5
	if text[0] == '@' {
		count = 1
		if word, _ := cutWord(text); strings.EqualFold(word, "@every") {
			count = 2
		}
	}
	var words []string
	for range count {
		var word string
		if word, text = cutWord(text); word != "" {
			words = append(words, word)
		}
	}
	entry.Spec = strings.Join(words, " ")
	if strings.EqualFold(entry.Spec, Reboot) {
		entry.Spec = Reboot
		p.readCommand(&entry, text)
	} else if _, err := cronspec.New(entry.Spec, entry.Zone, ""); err != nil {
		p.fail(p.noSpec(words, err))
	} else {
		p.readCommand(&entry, text)
	}
	entry.Key = p.key(&entry)
	p.entries = append(p.entries, entry)
}

// noSpec returns why a line does not begin with a spec, if it shows more than the error about that does.
func (p *parser) noSpec(words []string, err error) error {
	switch {
	case p.continued:
		return errors.New("the backslash at the end of the line above does not join this one to it, as in cron; write one line, or call a script")
	case words[0] == "export" && len(words) > 1 && assignment().MatchString(words[1]):
		return errors.New("a setting is NAME=VALUE; leave export out")
	case len(words) == 5 && begins(words[4]):
		if _, four := cronspec.New(strings.Join(words[:4], " ")+" *", "", ""); four == nil {
			return fmt.Errorf("only four fields are before the command %q; write five: minute, hour, day of month, month, day of week", words[4])
		}
	}
	return err
}

// readCommand parses what follows an entry's spec.
func (p *parser) readCommand(entry *Entry, text string) {
	before, place := entry.Spec, "spec"
	if p.system {
		entry.User, text = cutWord(text)
		before, place = before+" "+entry.User, "user"
	}
	entry.Command, entry.Stdin = splitCommand(text)
	switch {
	case p.system && entry.User == "":
		p.fail(fmt.Errorf("no user follows %q; write the user that the command runs as, and then the command", entry.Spec))
	case utf8.RuneCountInString(entry.User) > maxUser || strings.ContainsAny(entry.User, "%:/"):
		p.fail(fmt.Errorf("%.80q is no user's name; write the user that the command runs as after the spec", entry.User))
	case strings.Trim(entry.Command, blanks) == "":
		p.fail(fmt.Errorf("no command follows %q; write one after the %s", before, place))
	default:
		p.checkInput(entry, text)
		first, _ := cutWord(entry.Command)
		for _, word := range []string{entry.User, first} {
			if entry.Spec[0] != '@' && field().MatchString(word) {
				p.fail(sixthField(entry.Spec, word))
				break
			}
		}
	}
}

// sixthField refuses a spec of a format with more fields than cron's. The shell would expand a * to the first file of the
// folder, and run that.
func sixthField(spec, word string) error {
	format, advice := "whose first field is the second, as in Quartz and Spring", "leave that out, or write @every 10s"
	if year().MatchString(word) {
		format, advice = "with a field for the year, as in Quartz", "leave that out"
	}
	if right := cronspec.Instead(spec + " " + word); right != "" {
		advice = "write " + right
	}
	return fmt.Errorf("%q after %q looks like a sixth field, of a format %s; cron has five: %s; if it is a command, write its path",
		word, spec, format, advice)
}

var year = pattern.Lazy(`^(?:19|20)[0-9]{2}\b`)

// A field is a list of values, ranges and steps. A value is a number, a name in a range or a list (the name alone may be a
// command's), or one of the signs of other formats: ? L W 15W 5L 5#2 L-3.
var field = func() func() *regexp.Regexp {
	const (
		name   = `(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat)`
		number = `(?:\*|\?|LW|[0-9]*[LW]|[0-9]+#[0-9]+|[0-9]+)(?:-[0-9]+)?(?:/[0-9]+)?`
		names  = name + `-` + name + `(?:/[0-9]+)?`
		value  = `(?:` + number + `|` + names + `|` + name + `)`
	)
	return pattern.Lazy(`^(?:` + number + `|` + names + `|` + value + `(?:,` + value + `)+)$`)
}()

// key returns the entry's key. It also checks that names are unique.
func (p *parser) key(entry *Entry) string {
	if entry.Name != "" {
		if first, ok := p.named[entry.Name]; ok {
			p.fail(fmt.Errorf("the name %q is taken by the entry on line %d; choose another", entry.Name, first))
		} else {
			p.named[entry.Name] = entry.Line
		}
		return "name:" + entry.Name
	}
	// Not of the line as written, which Format may change.
	text := entry.Spec + "\n" + joinCommand(entry.Command, entry.Stdin)
	if entry.User != "" {
		text += "\n" + entry.User
	}
	sum := sha256.Sum256([]byte(text))
	key := fmt.Sprintf("line:%x", sum[:16])
	p.repeats[key]++
	if n := p.repeats[key]; n > 1 {
		return fmt.Sprintf("%s#%d", key, n)
	}
	return key
}

// cutWord splits text at the first run of blanks.
func cutWord(text string) (word, rest string) {
	end := strings.IndexAny(text, blanks)
	if end < 0 {
		return text, ""
	}
	return text[:end], strings.TrimLeft(text[end:], blanks)
}

// splitCommand splits a command from its input at the first % that is not escaped. The manual page does
// not define other backslashes; this follows Debian's cron 3.0pl1-162. In the command, \\ is a
// backslash, so "a\\%b" has an input. In the input, \% is a percent sign whatever precedes it. All
// other backslashes are literal.
func splitCommand(text string) (command, stdin string) {
	var b strings.Builder
	for text != "" && text[0] != '%' {
		if strings.HasPrefix(text, `\\`) || strings.HasPrefix(text, `\%`) {
			text = text[1:]
		}
		b.WriteByte(text[0])
		text = text[1:]
	}
	if text != "" {
		stdin = unescapeStdin.Replace(text[1:])
	}
	if stdin != "" && !strings.HasSuffix(stdin, "\n") {
		stdin += "\n"
	}
	return b.String(), stdin
}

// joinCommand is the inverse of splitCommand. It writes no unnecessary backslash or %, so each command
// and input has one text. An input has none if it has a backslash before a newline other than the last,
// or no newline at its end.
func joinCommand(command, stdin string) string {
	var b strings.Builder
	for i := range len(command) {
		switch rest := command[i:]; {
		case rest[0] == '%', strings.HasPrefix(rest, `\\`), strings.HasPrefix(rest, `\%`), rest == `\` && stdin != "":
			b.WriteByte('\\')
		}
		b.WriteByte(command[i])
	}
	if stdin == "" {
		return b.String()
	}
	if !strings.HasSuffix("\n"+stdin, "\n\n") {
		stdin = strings.TrimSuffix(stdin, "\n") // splitCommand adds it
	}
	return b.String() + "%" + escapeStdin.Replace(stdin)
}

var (
	unescapeStdin = strings.NewReplacer(`\%`, "%", "%", "\n")
	escapeStdin   = strings.NewReplacer("%", `\%`, "\n", "%")
)
