package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/sqlschema"
)

// version is set by the linker: see `make dist`.
var version = "devel"

// A versionRow is the output of the version command for programs.
type versionRow struct {
	Version string           `json:"version"`
	Commit  string           `json:"commit" table:",rare"`
	Go      string           `json:"go"`
	System  string           `json:"system"`
	Schema  map[string]int64 `json:"schema" table:"-"`
}

func (p *program) version() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version. With -o json it comes with the commit that it was built from, if that
is known, and for each engine the number of the migration that its tables have to be at.`,
		Example: `  dbcron version
  dbcron version -o json | jq '.[0].schema'`,

		Annotations: map[string]string{configuresItself: "yes"},
		RunE: func(*cobra.Command, []string) error {
			if output == "table" {
				_, err := fmt.Fprintln(p.out, "dbcron "+version)
				return err
			}
			row := versionRow{Version: version, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Schema: map[string]int64{}}
			for _, d := range engines.All {
				row.Schema[d.Name] = sqlschema.Latest(d)
			}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						row.Commit = s.Value
					}
				}
			}
			return table.Write(p.out, output, []versionRow{row})
		},
	}
	outputFlag(c, &output)
	return c
}
