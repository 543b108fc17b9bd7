package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/internal/ops/crontab"
	"github.com/dbcron/dbcron/internal/pattern"
)

var (
	// joints separate the commands of a line. A quoted one is taken for one, too: it is only about a name.
	joints = pattern.Lazy(`&&|\|\||[;|\n]`)

	assignment = pattern.Lazy(`^[A-Za-z_][A-Za-z_0-9]*=`)

	// argumentOf matches what follows a wrapper: its options, numbers, times and files.
	argumentOf = pattern.Lazy(`^(-.*|[0-9.]+[smhd]?|/(tmp|var|run|dev)/.*)$`)
	subcommand = pattern.Lazy(`^[A-Za-z][A-Za-z0-9:_.-]*$`)

	// ofShell matches the line that a shell is given, as schedulers of Ruby write it.
	ofShell = pattern.Lazy(`^\s*(?:\S*/)?(?:ba|da|k|z)?sh\s+(?:-\w+\s+)*-\w*c\s+(?:'([^']*)'|"([^"]*)")`)

	preludes     = []string{"cd", "export", "set", "umask", "sleep", "test", "[", ".", "source", "true", ":"}
	wrappers     = []string{"sudo", "nice", "ionice", "nohup", "time", "timeout", "flock", "chronic", "cronic", "env", "exec", "setsid"}
	interpreters = []string{"sh", "bash", "php", "python", "python3", "perl", "ruby", "node"}
)

// lineName names an unnamed line by what a person would call its command, and a hash that distinguishes it from other lines and
// files.
func lineName(source string, e crontab.Entry) string {
	sum := sha256.Sum256([]byte(source + "\n" + e.Key))
	return cmp.Or(commandName(e.Command), "line") + "-" + hex.EncodeToString(sum[:4])
}

// commandName is the program that a command is about, and its subcommand: without what the shell does before it, what it is
// wrapped in, and the interpreter of a script.
func commandName(command string) string {
	if inner := ofShell().FindStringSubmatch(command); inner != nil {
		if name := commandName(inner[1] + inner[2]); name != "" {
			return name
		}
	}
	parts := joints().Split(command, -1)
	for i, part := range parts {
		words := strings.Fields(strings.TrimLeft(part, "({! \t"))
		for len(words) > 0 && assignment().MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) == 0 || i < len(parts)-1 && slices.Contains(preludes, words[0]) {
			continue
		}
		for len(words) > 1 && slices.Contains(wrappers, path.Base(words[0])) { // sudo -u www-data env A=1 command
			words = words[1:]
			argument := func(word string) bool { return argumentOf().MatchString(word) || assignment().MatchString(word) }
			for user := false; len(words) > 1 && (user || argument(words[0])); words = words[1:] {
				user = words[0] == "-u" || words[0] == "-g"
			}
		}
		if len(words) > 2 && words[0] == "bundle" && words[1] == "exec" {
			words = words[2:]
		}
		if len(words) > 1 && slices.Contains(interpreters, path.Base(words[0])) && !strings.ContainsAny(words[1][:1], "-'\"") {
			words = words[1:]
		}
		name := nameOf(path.Base(words[0]))
		if len(words) > 1 && subcommand().MatchString(words[1]) {
			name = strings.TrimPrefix(name+"-"+nameOf(words[1]), "-")
		}
		return name[:min(len(name), 40)]
	}
	return ""
}

// nameOf keeps of a word what needs no quotes anywhere.
func nameOf(word string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r):
			return r
		case r == ':':
			return '-'
		}
		return -1
	}, word)
}
