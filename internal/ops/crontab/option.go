package crontab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxOptions limits the options of an entry.
const maxOptions = 100

// readOptions parses what follows "# dbcron:" in a comment.
func (p *parser) readOptions(text string) {
	before := len(p.options)
	for {
		if text = strings.TrimLeft(text, blanks); text == "" {
			break
		}
		option, rest, err := cutOption(text)
		switch {
		case err != nil:
			p.fail(err)
			return
		case slices.ContainsFunc(p.options, func(o Option) bool { return o.Name == option.Name }):
			p.fail(fmt.Errorf("the option %s is there twice; remove one", option.Name))
			return
		case len(p.options) == maxOptions:
			p.fail(fmt.Errorf("more than %d options; remove some", maxOptions))
			return
		}
		option.Line = p.line
		for _, check := range p.checks {
			if err := check(option); err != nil {
				p.fail(err)
			}
		}
		p.options, text = append(p.options, option), rest
	}
	if len(p.options) == before {
		p.fail(errors.New("no option follows; write # dbcron: NAME=VALUE, such as timeout=1h"))
	}
}

// cutOption cuts NAME=VALUE off the front of a text, up to its end or a blank. A value may be quoted.
func cutOption(text string) (o Option, rest string, err error) {
	end := strings.IndexAny(text, blanks+"=")
	if end <= 0 || text[end] != '=' || strings.ContainsAny(text[:end], "\"'#") {
		word, _ := cutWord(text)
		return o, "", fmt.Errorf("%.80q is no option; write NAME=VALUE, such as timeout=1h", word)
	}
	o.Name, text = text[:end], text[end+1:]
	if text == "" || text[0] != '"' && text[0] != '\'' {
		o.Value, rest = text, ""
		if end := strings.IndexAny(text, blanks); end >= 0 {
			o.Value, rest = text[:end], text[end:]
		}
		return o, rest, nil
	}
	if o.Value, rest, err = cutQuoted(text); err == nil && rest != "" && !strings.ContainsAny(rest[:1], blanks) {
		err = fmt.Errorf("%q follows the closing quote; put the quotes around the whole value", rest)
	}
	return o, rest, err
}

// joinOptions formats the comment that readOptions parses.
func joinOptions(options []Option) (string, error) {
	text := "# dbcron:"
	for _, o := range options {
		value, ok := o.Value, true
		if strings.ContainsAny(value, blanks) || value != "" && strings.ContainsAny(value[:1], "\"'") {
			value, ok = quote(value)
		}
		if !ok || strings.Contains(value, "\n") {
			return "", fmt.Errorf("the value of the option %s needs quotes and holds both kinds, or a newline; choose another", o.Name)
		}
		text += " " + o.Name + "=" + value
	}
	return text, nil
}
