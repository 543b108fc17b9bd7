package cronspec_test

import (
	"fmt"
	"time"

	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// A job at a fixed time runs once when the clock jumps over it.
func Example() {
	s, err := cronspec.New("30 2 * * *", "Europe/Berlin", "vixie")
	if err != nil {
		panic(err)
	}
	at := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for range 3 {
		at, _ = s.Next(at)
		fmt.Println(at.In(s.Location()))
	}
	// Output:
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
	// 2026-03-31 02:30:00 +0200 CEST
}

func ExampleSchedule_Count() {
	s, err := cronspec.New("*/15 8-17 * * 1-5", "UTC", "vixie")
	if err != nil {
		panic(err)
	}
	monday := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(s.Count(monday, monday.AddDate(0, 0, 7), 1000))
	// Output: 200
}
