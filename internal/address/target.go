package address

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Nobody is the setting of a schedule or a queue about which nobody is notified.
const Nobody = "none"

const (
	maxTarget  = 700
	maxTargets = 20
)

// ParseTargets parses a list of notification targets, separated by blanks or commas:
//
//	mailto:ada@example.org   mail; "mailto:" may be left out where there is an @
//	https://example.org/in   a webhook
//	none                     nobody, if it stands alone
//
// It returns each target once, as a mailto: or http(s) URL, or an error that says what is wrong.
func ParseTargets(text string) (all []string, err error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == ',' })
	if len(words) == 1 && words[0] == Nobody {
		return nil, nil
	}
	if len(words) > maxTargets {
		return nil, fmt.Errorf("there are %d targets; use at most %d", len(words), maxTargets)
	}
	seen := map[string]bool{}
	for _, word := range words {
		target, err := parseOne(word)
		if err != nil {
			return nil, err
		}
		if !seen[target] {
			all = append(all, target)
		}
		seen[target] = true
	}
	return all, nil
}

// OwnTargets returns the targets that a schedule or a queue has of its own, in the form of the table notice: with blanks
// between. "" stands for the daemons' targets. nobody means that no problem is to be noted. A text that
// cannot be parsed was written by hand; the daemons' targets are notified then.
func OwnTargets(text string) (own string, nobody bool) {
	all, err := ParseTargets(text)
	return strings.Join(all, " "), text != "" && len(all) == 0 && err == nil
}

func parseOne(word string) (string, error) {
	if !strings.Contains(word, ":") && strings.Contains(word, "@") {
		word = "mailto:" + word
	}
	if !utf8.ValidString(word) {
		return "", fmt.Errorf("%.80q is not UTF-8", word)
	}
	if len(word) > maxTarget {
		return "", fmt.Errorf("the target %.40q… is longer than %d bytes", word, maxTarget)
	}
	if address, ok := strings.CutPrefix(word, "mailto:"); ok {
		if err := checkAddress(address); err != nil {
			return "", fmt.Errorf("%q: %w", word, err)
		}
		return word, nil
	}
	u, err := url.Parse(word)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil:
		return word, nil
	case err == nil && u.User != nil:
		return "", errors.New("a URL with a password in it would be shown in lists")
	}
	return "", fmt.Errorf("%.80q is no target; write mailto:ada@example.org, https://example.org/in, or none", word)
}

// checkAddress refuses text that could be more than one address in a header or on a line of SMTP. A
// name without @ is a user of the mail server's host.
func checkAddress(address string) error {
	name, host, at := strings.Cut(address, "@")
	switch {
	case name == "" || at && host == "" || strings.Contains(host, "@") || strings.HasPrefix(name, "-"):
		return errors.New("it is no address such as ada@example.org")
	case len(address) > 254:
		return errors.New("the address is longer than 254 bytes")
	case strings.ContainsFunc(address, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("<>()[]\\,;:\"?&|`$", r) || r == unicode.ReplacementChar
	}):
		return errors.New("the address holds characters that addresses do not have")
	}
	return nil
}
