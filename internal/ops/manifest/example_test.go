package manifest_test

import (
	"fmt"

	"github.com/dbcron/dbcron/internal/ops/manifest"
)

// Written schedules read back unchanged.
func Example() {
	all, err := manifest.Parse("jobs.yaml",
		[]byte("schedules:\n- name: report\n  spec: \"0 6 * * *\"\n  shell: report --all\n  max_attempts: 3\n"))
	if err != nil {
		panic(err)
	}
	for _, s := range all {
		fmt.Println(s.Name, s.Spec, s.Command, s.MaxAttempts)
	}
	text, err := manifest.Format(all)
	fmt.Printf("%s%v\n", text, err)
	// Output:
	// report 0 6 * * * report --all 3
	// schedules:
	//   - name: report
	//     spec: "0 6 * * *"
	//     shell: report --all
	//     max_attempts: 3
	// <nil>
}
