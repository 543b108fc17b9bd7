package crontab_test

import (
	"fmt"

	"github.com/dbcron/dbcron/internal/ops/crontab"
)

// A crontab becomes entries; what is wrong with it is told with its line.
func ExampleParse() {
	entries, err := crontab.Parse("crontab", []byte("CRON_TZ=Europe/Berlin\n# name: backup\n30 3 * * 1-5 pg_dump app | gzip\n"))
	for _, e := range entries {
		fmt.Println(e.Name, "|", e.Spec, "|", e.Zone, "|", e.Command)
	}
	fmt.Println(err)
	_, err = crontab.Parse("crontab", []byte("99 3 * * * backup\n"))
	fmt.Println(err)
	// Output:
	// backup | 30 3 * * 1-5 | Europe/Berlin | pg_dump app | gzip
	// <nil>
	// crontab:1: invalid schedule: spec "99 3 * * *": minute, item "99": 99 is out of range; use 0-59
}
