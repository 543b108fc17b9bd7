package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/ops/config"
	"github.com/dbcron/dbcron/internal/ops/table"
)

func (p *program) config() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check the settings of the daemon, and see where each comes from",
		Long: `Check the settings of dbcron serve, and see where each comes from. The first of
these counts:

    a flag                --log-format json
    the environment       DBCRON_LOG_FORMAT=json
    the file              log_format: json
    the default

The file is the one that --config names, or DBCRON_CONFIG, in YAML. Its keys are the
flags' names with _ for -, but for database_url and database_url_file. A setting that
there may be several of is a list in the file, and in the environment parted by commas.
Other commands take the database from it: database_url or database_url_file, prefix,
schema and connect_timeout. dbcron help operations has more.`,
	}
	c.AddCommand(p.configCheck(), p.configShow())
	return c
}

func (p *program) configCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Report all errors in the settings",
		Long: `Report all errors in the settings in the file and in the environment. Neither a
database nor another file is opened; dbcron serve --check checks crontabs and files of
schedules.

Exit codes: 0 all is good, 2 something is wrong, 1 the file cannot be read.`,
		Example:     `  dbcron config check --config /etc/dbcron/dbcron.yaml`,
		Annotations: map[string]string{configuresItself: "yes"},
		RunE: func(c *cobra.Command, _ []string) error {
			s, _, err := p.serveSettings(c)
			if err != nil {
				return err
			}
			text := "the environment"
			if s.Path != "" {
				text = s.Path
			}
			_, err = fmt.Fprintln(p.out, harmless(text)+": all good")
			return err
		},
	}
}

// configuresItself marks commands that handle settings themselves or need none.
const configuresItself = "configures itself"

// configure sets flags that were not given on the command line from the environment or the file: all of
// serve's, and the database flags of other commands.
func (p *program) configure(c *cobra.Command, _ []string) error {
	if c.HasSubCommands() || c.Annotations[configuresItself] != "" {
		return nil
	}
	s, err := p.settings()
	if err != nil {
		return err
	}
	flags := c.InheritedFlags()
	if c.Name() == "serve" {
		flags = c.Flags()
		s.WarnOfVariables()
	}
	p.tell(s)
	// The error may concern a mistyped name of the database, so all commands fail.
	if err := errors.Join(s.Problems...); err != nil {
		return err
	}
	return p.apply(s, config.Flags(flags))
}

// settings reads the file and the environment.
func (p *program) settings() (*config.Settings, error) {
	var f serveFlags
	var d databaseFlags
	serve, root := &cobra.Command{}, &cobra.Command{}
	f.register(serve)
	d.register(root)
	return config.Read(p.configPath, p.environ, config.Flags(serve.Flags(), root.PersistentFlags()))
}

// apply sets flags, and the database that the file names.
func (p *program) apply(s *config.Settings, flags map[string]*pflag.Flag) error {
	p.fromFile = s.Database()
	return s.Apply(flags, p.set)
}

// tell prints the warnings.
func (p *program) tell(s *config.Settings) {
	for _, w := range s.Warnings {
		p.warn("warning: " + harmless(w))
	}
}

// serveSettings sets flags of serve, and c's flags shared by all commands, to the values that they would
// have in serve.
func (p *program) serveSettings(c *cobra.Command) (*config.Settings, map[string]*pflag.Flag, error) {
	s, f, flags, err := p.settingsOfServe(c)
	if err != nil {
		return nil, nil, err
	}
	return s, flags, p.checkServe(f)
}

// settingsOfServe sets flags of serve to the values that they would have there.
func (p *program) settingsOfServe(c *cobra.Command) (*config.Settings, *serveFlags, map[string]*pflag.Flag, error) {
	s, err := p.settings()
	if err != nil {
		return nil, nil, nil, err
	}
	s.CheckEnvironment()
	s.WarnOfVariables()
	p.tell(s)
	if err := errors.Join(s.Problems...); err != nil {
		return nil, nil, nil, err
	}
	var f serveFlags
	serve := &cobra.Command{}
	f.register(serve)
	flags := config.Flags(serve.Flags(), c.InheritedFlags())
	return s, &f, flags, p.apply(s, flags)
}

// checkServe checks serve's settings without opening anything.
func (p *program) checkServe(f *serveFlags) error {
	_, _, err := p.checkedOptions(f)
	rawURL, err2 := p.databaseURL()
	if err2 == nil {
		if _, err := engines.ForURL(rawURL); err != nil {
			err2 = usagef("%v", err)
		}
	}
	return errors.Join(err, f.checkServices(false), checkAddress("listen", f.http.listen), checkAddress("admin_listen", f.http.admin), err2)
}

func checkAddress(key, address string) error {
	if address == "" || address == noListen {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return usagef("%s: %q: write it as 127.0.0.1:8686, or :8686 for all addresses of this host", key, address)
	}
	return nil
}

type settingRow struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	From    string `json:"from"`
}

func (p *program) configShow() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the settings that dbcron serve would have here, and where each comes from",
		Long: `Show the settings that dbcron serve would have here, without flags, and where each
comes from. Passwords are left out.`,
		Example:     `  dbcron config show --config /etc/dbcron/dbcron.yaml`,
		Annotations: map[string]string{configuresItself: "yes"},
		RunE: func(c *cobra.Command, _ []string) error {
			_, flags, err := p.serveSettings(c)
			if err != nil {
				return err
			}
			rawURL, from, err := p.findDatabase()
			if err != nil {
				return err
			}
			rows := []settingRow{{config.KeyURL, config.WithoutSecrets(config.KeyURL, rawURL), from}}
			for key, f := range flags {
				if key != config.KeyURL {
					rows = append(rows, settingRow{key, config.WithoutSecrets(key, valueText(f)), p.sourceOf(f)})
				}
			}
			slices.SortFunc(rows, func(a, b settingRow) int { return strings.Compare(a.Setting, b.Setting) })
			return table.Write(p.out, output, rows)
		},
	}
	outputFlag(c, &output)
	return c
}

func valueText(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return f.Value.String()
}

// sourceOf returns where a flag's value comes from.
func (p *program) sourceOf(f *pflag.Flag) string {
	switch from := p.set[f.Name]; {
	case from != "":
		return from
	case f.Changed:
		return "--" + f.Name
	}
	return "default"
}

// onCommandLine reports whether a flag was given on the command line, rather than set by the environment or
// a file.
func (p *program) onCommandLine(c *cobra.Command, name string) bool {
	return c.Flags().Changed(name) && p.set[name] == ""
}
