package cronspec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A field is one of the five parts of a spec.
type field struct {
	name     string
	min, max int
	last     int      // what "*" and "n/k" run to; differs from max only where Sunday is also 7
	names    []string // the first stands for min
}

var fields = [...]field{
	{name: "minute", min: 0, max: 59, last: 59},
	{name: "hour", min: 0, max: 23, last: 23},
	{name: "day of month", min: 1, max: 31, last: 31},
	{name: "month", min: 1, max: 12, last: 12, names: []string{
		"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
	}},
	{name: "day of week", min: 0, max: 7, last: 6, names: []string{
		"sun", "mon", "tue", "wed", "thu", "fri", "sat",
	}},
}

// parse checks a list of items and writes it out as plain numbers.
func (f *field) parse(text string) (string, error) {
	var values []string
	for item := range strings.SplitSeq(text, ",") {
		lo, hi, step, err := f.item(item)
		if err != nil {
			return "", fmt.Errorf("%s, item %q: %w", f.name, item, err)
		}
		for v := lo; v <= hi; v += step {
			n := strconv.Itoa(v)
			if v > f.last {
				n = strconv.Itoa(f.min) // Sunday, as 7
			}
			if !slices.Contains(values, n) {
				values = append(values, n)
			}
		}
	}
	return strings.Join(values, ","), nil
}

// item parses "*", "n" or "n-m", each with or without "/k".
func (f *field) item(text string) (lo, hi, step int, err error) {
	if text == "" {
		return 0, 0, 0, errors.New("it is empty; take out the extra comma")
	}
	span, stepText, stepped := strings.Cut(text, "/")
	if lo, hi, err = f.span(span, stepped); err != nil {
		return 0, 0, 0, err
	}
	if !stepped {
		return lo, hi, 1, nil
	}
	size := hi - lo + 1
	if step, err = number(stepText); err != nil {
		return 0, 0, 0, fmt.Errorf("the step after / is no number; use 1-%d", size)
	}
	if step < 1 || step > size {
		return 0, 0, 0, fmt.Errorf("step %d is out of range for %d values; use 1-%d", step, size, size)
	}
	return lo, hi, step, nil
}

// span parses the part before the step. If open is set, a step follows, and a single value
// extends to the end of the field.
func (f *field) span(text string, open bool) (lo, hi int, err error) {
	if text == "*" {
		return f.min, f.last, nil
	}
	first, second, isRange := strings.Cut(text, "-")
	if lo, err = f.value(first); err != nil {
		return 0, 0, err
	}
	switch {
	case isRange:
		if hi, err = f.value(second); err != nil {
			return 0, 0, err
		}
		if strings.EqualFold(second, "sun") && lo > f.min {
			hi = f.max // fri-sun: the Sunday after, not the one before
		}
		if lo > hi {
			return 0, 0, fmt.Errorf("the range runs backwards; write two items: %s-%d,%d-%s",
				first, f.last, f.min, second)
		}
		return lo, hi, nil
	case open && lo > f.last:
		return 0, 0, fmt.Errorf("no value follows %d; use %d before the step", lo, f.min)
	case open:
		return lo, f.last, nil
	}
	return lo, lo, nil
}

// value parses a number or a name.
func (f *field) value(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.min + i, nil
	}
	v, err := number(text)
	if err != nil {
		return 0, f.explain(text)
	}
	if v < f.min || v > f.max {
		return 0, fmt.Errorf("%d is out of range; use %s", v, f.legal())
	}
	return v, nil
}

// explain returns an error that says why text is not a value.
func (f *field) explain(text string) error {
	switch {
	case text == "":
		return fmt.Errorf("a number is missing; use %s (no signs)", f.legal())
	case text == "?":
		return errors.New("? is not supported; use *")
	case strings.HasPrefix(text, "*"):
		return errors.New("* stands alone or before a step; write * or */5")
	case strings.ContainsAny(text, "H~R") && len(strings.Trim(text, "0123456789")) == 1:
		return fmt.Errorf("not a value; ? L W # H ~ R of other crons are not supported; for a random time use a fixed one (%s), and a jitter", f.legal())
	case strings.ContainsAny(text, "?LWH#~Rlwhr") && len(strings.Trim(text, "0123456789")) <= 2: // 5L, LW, 5#2; not friday
		return fmt.Errorf("not a value; ? L W # H ~ R of other crons are not supported; use %s", f.legal())
	}
	return fmt.Errorf("%q is not a value; use %s", text, f.legal())
}

func (f *field) legal() string {
	if f.names == nil {
		return fmt.Sprintf("%d-%d", f.min, f.max)
	}
	return fmt.Sprintf("%d-%d or %s-%s", f.min, f.max, f.names[0], f.names[len(f.names)-1])
}

// number parses digits. Unlike Atoi it accepts no sign.
func number(text string) (int, error) {
	for _, r := range text {
		if r < '0' || r > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.Atoi(text)
}
