package crontab

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// Format writes a crontab that Parse reads as the same entries: equal in Name, Zone, Command and Stdin,
// in Spec except for blanks, and with the same Description, and settings in Env. Entries read by Parse can always be
// written, unless the result exceeds a size limit, and get the same keys again. Format ignores Line and
// Key, and other comments are lost.
//
// Settings are written where they change between entries. No line of a crontab unsets one, so entries
// with fewer settings come first. Otherwise the order stays, as it always does for entries of one file.
//
// Format returns the crontab or an error, which joins the errors of all entries that a crontab cannot
// express. Each of them is one line, such as
//
//	entry 2, "backup": the command holds a newline; join its lines with ; or call a script
//
// Entries count from 1, in the order given.
func Format(entries []Entry) ([]byte, error) {
	w := writer{reader: newParser(), named: map[string]string{}, set: map[string]string{}}
	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	// Settings can only be added, so the names in each entry's Env must be among those of the next
	// one. If any order works, this one does.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(entries[a].Env), len(entries[b].Env)) })
	errs := make([]error, len(entries))
	for _, i := range order {
		w.title = title(i, &entries[i])
		if err := w.write(&entries[i]); err != nil {
			errs[i] = fmt.Errorf("%s: %w", w.title, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	text := w.text.Bytes()
	if bytes.HasPrefix(text, []byte(mark)) { // in the name of a setting; Parse takes the first one off
		text = slices.Concat([]byte(mark), text)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("the crontab has %d bytes; write several of at most %d", len(text), maxFile)
	}
	return text, nil
}

// title identifies an entry in messages.
func title(i int, e *Entry) string {
	return fmt.Sprintf("entry %d, %.60q", i+1, cmp.Or(e.Name, e.Spec+" "+e.Command))
}

// A writer reads back each line that it writes. So it knows the settings in force, and refuses what
// Parse refuses, in the same words.
type writer struct {
	text   bytes.Buffer
	reader *parser
	title  string            // of the entry being written
	named  map[string]string // from an entry's name to its title
	set    map[string]string // from a setting's name to the title of the first entry that has it
}

// write writes the settings that change, the name and the line of an entry.
func (w *writer) write(e *Entry) error {
	line, err := w.line(e)
	if err != nil {
		return err
	}
	if err := w.writeSettings(e); err != nil {
		return err
	}
	if e.Name != "" || e.Description != "" || len(e.Options) > 0 {
		w.gap()
	}
	if e.Description != "" {
		if err := w.writeLine("# " + e.Description); err != nil || w.reader.about != e.Description {
			w.reader.about = ""
			return cmp.Or(err, errors.New("the description would be read as something else; change it"))
		}
	}
	if e.Name != "" {
		if err := w.writeLine("# name: " + e.Name); err != nil {
			return err
		}
		if w.reader.name != e.Name {
			w.reader.nameLine = 0
			return errors.New("the name begins or ends with a blank; remove it")
		}
	}
	if len(e.Options) > 0 {
		options, err := joinOptions(e.Options)
		if err == nil {
			err = w.writeLine(options)
		}
		if err != nil {
			w.reader.nameLine, w.reader.options, w.reader.about = 0, nil, ""
			return err
		}
	}
	err = w.writeLine(line)
	w.reader.nameLine, w.reader.options, w.reader.about = 0, nil, "" // even if the entry was refused: the next one has its own
	return err
}

// line returns the entry's own line. It refuses what would be read as something else, and leaves the
// rest to the reader.
func (w *writer) line(e *Entry) (string, error) {
	for _, text := range []string{e.Name, e.Description, e.Spec, e.Zone, e.Command, e.Stdin} {
		if err := checkText(text); err != nil {
			return "", err
		}
	}
	if other, ok := w.named[e.Name]; ok && e.Name != "" {
		return "", fmt.Errorf("its name is that of %s; choose another", other)
	}
	w.named[e.Name] = w.title
	if _, err := cronspec.Parse(e.Spec); err != nil && e.Spec != Reboot {
		return "", err
	}
	spec := strings.Join(strings.Fields(e.Spec), " ")
	line := spec + " " + joinCommand(e.Command, e.Stdin)
	switch {
	case e.User != "":
		return "", fmt.Errorf("it runs as the user %q, which only a system crontab can say; leave the user out", e.User)
	case strings.TrimLeft(e.Command, blanks) != e.Command:
		return "", errors.New("the command begins with a blank, which a crontab leaves out; remove it")
	case strings.Contains(e.Command, "\n"):
		return "", errors.New("the command holds a newline; join its lines with ; or call a script")
	case isSetting(line):
		return "", fmt.Errorf("%s before a command that begins with = is read as a setting; write five fields", spec)
	case e.Stdin != "" && !strings.HasSuffix(e.Stdin, "\n"):
		return "", errors.New("the input does not end with a newline, which a crontab adds; add one")
	case strings.Contains(strings.TrimSuffix(e.Stdin, "\n"), "\\\n"):
		return "", errors.New(`a line of the input ends with a backslash, but \% is a percent sign in a crontab; ` +
			"put the input into a file")
	}
	return line, nil
}

func checkText(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("%.60q is no UTF-8 text, or holds a NUL; change it", text)
	}
	return nil
}

// writeSettings writes the settings that change with the entry.
func (w *writer) writeSettings(e *Entry) error {
	changes, err := w.changes(e)
	if err != nil || len(changes) == 0 {
		return err
	}
	w.gap()
	for _, line := range changes {
		if err := w.writeLine(line); err != nil {
			return err
		}
	}
	w.gap()
	return nil
}

func (w *writer) changes(e *Entry) (lines []string, err error) {
	held := map[string]bool{}
	for _, pair := range w.reader.env {
		held[pair] = true
	}
	has := map[string]bool{}
	for _, pair := range e.Env {
		name, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok:
			return nil, fmt.Errorf("the setting %.60q has no equals sign; write NAME=VALUE", pair)
		case name == zoneName:
			return nil, fmt.Errorf("%s is among the settings; in a crontab it is the zone of the spec, so set that", name)
		case has[name]:
			return nil, fmt.Errorf("the setting %q is there twice; remove one", name)
		}
		has[name] = true
		w.set[name] = cmp.Or(w.set[name], w.title)
		if held[pair] {
			continue
		}
		if err := checkText(pair); err != nil {
			return nil, err
		}
		line, err := joinSetting(name, value)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	for _, pair := range w.reader.env {
		if name, _, _ := strings.Cut(pair, "="); !has[name] {
			return nil, fmt.Errorf("the setting %q of %s, is missing, and no line of a crontab takes it back; "+
				"give it to both, or write two files", name, w.set[name])
		}
	}
	if e.Zone != w.reader.zone {
		line, err := joinSetting(zoneName, e.Zone)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// writeLine writes a line, and returns the reader's error about it.
func (w *writer) writeLine(line string) error {
	w.text.WriteString(line)
	if strings.HasSuffix(line, "\r") {
		w.text.WriteByte('\r') // Parse takes a final \r as part of the newline
	}
	w.text.WriteByte('\n')
	w.reader.line++
	w.reader.readLine(line)
	if found := w.reader.problems; len(found) > 0 {
		w.reader.problems = nil
		return found[0].err
	}
	return nil
}

// gap writes a blank line, except at the top and below another.
func (w *writer) gap() {
	if text := w.text.Bytes(); len(text) > 0 && !bytes.HasSuffix(text, []byte("\n\n")) {
		w.text.WriteByte('\n')
		w.reader.line++
	}
}
