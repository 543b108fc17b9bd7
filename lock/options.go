package lock

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/barrier"
)

// Options adjusts the leases of a Locker. The zero value is ready to use.
type Options struct {
	// Owner is the readable part of the holder's name; a random part is added
	// for each acquisition. Default: host:pid. At most 100 bytes.
	Owner string

	TTL    time.Duration // lifetime of a lease that is not renewed; default: 30s, at least 500ms
	Margin time.Duration // the context ends this long before the lease; default: TTL/10; from TTL/50 to TTL/2

	// Heartbeat is the interval between renewals in the background; default: a
	// third of TTL. If it is negative, only Extend renews the lease.
	Heartbeat time.Duration

	Stall   time.Duration // the lease is lost after this time without a call of Progress; default: no limit
	MaxHold time.Duration // the lease is lost after this time in any case; default: no limit
	MinHold time.Duration // a lock released before this time stays taken until then; at most a year

	// Acquire and Do give up after Tries × Every, with an ErrHeld. By default they
	// wait until their context ends. Every alone sets the polling interval, which
	// matters little where the database can notify. Default: adapted.
	Tries int
	Every time.Duration

	Meta   string       // the holder's description of itself, at most 10 000 bytes; visible to others, so no secrets
	Logger *slog.Logger // reports failed renewals; default: slog.Default
}

const (
	minTTL = 500 * time.Millisecond
	year   = 365 * 24 * time.Hour
)

// filled returns the options with the defaults filled in, or what is wrong.
func (o Options) filled() (Options, error) {
	if o.Owner == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		o.Owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	o.TTL = cmp.Or(o.TTL, 30*time.Second)
	o.Margin = cmp.Or(o.Margin, o.TTL/10)
	o.Heartbeat = cmp.Or(o.Heartbeat, o.TTL/3)
	if o.Tries > 0 {
		o.Every = cmp.Or(o.Every, time.Second)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = barrier.Logger(o.Logger)
	if wrong := cmp.Or(o.wrongTexts(), o.wrongLease(), o.wrongWait()); wrong != "" {
		return o, fmt.Errorf("%w: %s", ErrInvalid, wrong)
	}
	return o, nil
}

// wrongTexts says what is wrong with the texts of filled options, or "".
func (o *Options) wrongTexts() string {
	switch {
	case len(o.Owner) > 100:
		return "Owner is longer than 100 bytes"
	case !plain(o.Owner):
		return "Owner is not plain text"
	case len(o.Meta) > 10_000 || !utf8.ValidString(o.Meta) || strings.ContainsRune(o.Meta, 0):
		return "Meta must be UTF-8 without NUL, of 10 000 bytes at the most"
	}
	return ""
}

// wrongLease says what is wrong with how long leases last, or "".
func (o *Options) wrongLease() string {
	switch {
	case o.TTL < minTTL:
		return fmt.Sprintf("a TTL of %v could not be renewed in time; use %v or more", o.TTL, minTTL)
	case o.TTL > year || o.MinHold > year:
		return "TTL and MinHold are a year at the most"
	case o.Margin < o.TTL/50 || o.Margin > o.TTL/2:
		return fmt.Sprintf("Margin is %v; it must be from a fiftieth of TTL to half of it", o.Margin)
	case o.Heartbeat > (o.TTL-o.Margin)*2/3:
		return fmt.Sprintf("a Heartbeat of %v leaves no time for a second try before a lease of %v ends", o.Heartbeat, o.TTL)
	case o.Heartbeat >= 0 && o.Heartbeat < 50*time.Millisecond:
		return "a Heartbeat of less than 50ms would only load the database"
	case o.Stall < 0 || o.MaxHold < 0 || o.MinHold < 0:
		return "Stall, MaxHold and MinHold cannot be negative"
	}
	return ""
}

// wrongWait says what is wrong with how long to wait, or "".
func (o *Options) wrongWait() string {
	switch {
	case o.Tries < 0 || o.Every < 0:
		return "Tries and Every cannot be negative"
	case o.Tries > 1_000_000 || o.Tries > 0 && o.Every > year/time.Duration(o.Tries):
		return "Tries × Every is a year at the most, and Tries a million"
	case o.Every > 0 && o.Every < time.Millisecond:
		return "Every is 1ms at least"
	}
	return ""
}

func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
