package setting

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/wire"
)

// fieldsOf caches, by type of a struct of package wire, the fields by their names in JSON.
var fieldsOf sync.Map

// A field is the number of a field, and whether it is left out if it is empty.
type field struct {
	number   int
	optional bool
}

func fields(of reflect.Type) map[string]field {
	if known, ok := fieldsOf.Load(of); ok {
		return known.(map[string]field)
	}
	byName := map[string]field{}
	for i := range of.NumField() {
		name, options, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		byName[name] = field{i, options != ""}
	}
	fieldsOf.Store(of, byName)
	return byName
}

// Apply sets what a change or a noun of package wire gives: a pointer to a struct in which a nil pointer, an empty text and
// 0 say nothing. The error is about the returned field.
func Apply[T any](all []Setting[T], to *T, change any) (field string, err error) {
	from := reflect.ValueOf(change).Elem()
	byName := fields(from.Type())
	for i := range all {
		s := &all[i]
		at, ok := byName[s.Name]
		if !ok || from.Field(at.number).IsZero() && from.Field(at.number).Kind() != reflect.Bool { // a noun says false, too
			continue
		}
		text := textOf(reflect.Indirect(from.Field(at.number)))
		switch { // a program writes what is meant, and not what is near
		case s.Kind == Count && text == "0":
			return s.Name, errors.New("it is 0; write a number from 1 on, or a word")
		case s.Kind == Instant && text != "":
			if _, err := time.Parse(time.RFC3339, text); err != nil {
				return s.Name, errors.New("it is not a time such as 2026-12-31T18:00:00Z")
			}
		}
		if err := s.Set(to, text); err != nil {
			return s.Name, err
		}
	}
	return "", nil
}

func textOf(v reflect.Value) string {
	at, isTime := v.Interface().(wire.Instant)
	switch {
	case isTime:
		return at.UTC().Format(time.RFC3339Nano)
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case v.CanInt() && v.Int() != 0:
		return strconv.FormatInt(v.Int(), 10)
	case v.CanInt():
		return "" // takes it back
	}
	return v.String()
}

// Show sets the fields of a struct of package wire, to which a pointer is given. It leaves out what the work does not have.
func Show[T any](all []Setting[T], of *T, work string, to any) {
	into := reflect.ValueOf(to).Elem()
	byName := fields(into.Type())
	for i := range all {
		s := &all[i]
		at, ok := byName[s.Name]
		if !ok || at.optional && !s.Has(work) {
			continue
		}
		switch field := into.Field(at.number); field.Kind() {
		case reflect.Bool:
			field.SetBool(s.text(of) == "true")
		case reflect.String:
			field.SetString(s.text(of))
		case reflect.Struct:
			field.Set(reflect.ValueOf(wire.At(s.value(of).(time.Time))))
		default:
			field.Set(reflect.ValueOf(s.value(of)))
		}
	}
}
