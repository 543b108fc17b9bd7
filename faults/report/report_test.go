package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const printed = `{"Command":"make faults MINUTES=3","Commit":"abc"}
servers are starting
{"Action":"run","Test":"TestChaos"}
{"Action":"run","Test":"TestChaos/postgres"}
{"Action":"attr","Test":"TestChaos/postgres","Key":"kills","Value":"1234"}
{"Action":"attr","Test":"TestChaos/postgres","Key":"kills_of_the_server","Value":"2"}
{"Action":"pass","Test":"TestChaos/postgres"}
{"Action":"run","Test":"TestChaos/sqlite"}
{"Action":"attr","Test":"TestChaos/sqlite","Key":"kills","Value":"6"}
{"Action":"fail","Test":"TestChaos/sqlite"}
{"Action":"run","Test":"TestLockNetworkFrozen/mysql"}
{"Action":"run","Test":"TestLockNetworkFrozen/mysql/requests"}
{"Action":"pass","Test":"TestLockNetworkFrozen/mysql/requests"}
{"Action":"run","Test":"TestLockNetworkFrozen/mysql/answers"}
{"Action":"pass","Test":"TestLockNetworkFrozen/mysql/answers"}
{"Action":"pass","Test":"TestLockNetworkFrozen/mysql"}
{"Action":"fail","Test":"TestChaos"}
`

const simulated = `{"Runs":[{"Command":"make sim SEEDS=7 MINUTES=1","Commit":"abc"}],"Faults":["kill","stop"],"Workloads":[
{"Workload":"queue","Runs":7,"Trips":12345,"Virtual":7200000000000,"Done":{"jobs":1000},"Reached":{"kill":3,"a job is late":1},"Broken":{"lost":2},"Late":1250000000,"Claims":["kill","stop"]}]}`

// The tables say what was done, and what was violated; the sentences are in both pages.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	markers := "<!-- simulation -->\n<!-- /simulation --><!-- simulation.sum --><!-- /simulation.sum -->" +
		"<!-- servers -->old\n<!-- /servers --><!-- servers.sum --><!-- /servers.sum -->"
	write("page.md", markers)
	write("injected.md", "<!-- mutants -->stays<!-- /mutants -->")
	write("front.md", markers)
	write("servers.json", printed)
	write("simulation.json", simulated)
	if err := run(dir, filepath.Join(dir, "page.md"), filepath.Join(dir, "injected.md"), filepath.Join(dir, "front.md")); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, front := read("page.md"), read("front.md")
	if !strings.Contains(read("injected.md"), "-->stays<!--") {
		t.Errorf("a table was written whose file is not there: %s", read("injected.md"))
	}
	for _, want := range []string{
		"`make faults MINUTES=3`, at abc, on ",
		"| schedules | 1,234 kills, 2 kills of the server; 0 violations | – | – | 6 kills; **1 of 1 trials found violations** |\n",
		"| locks | – | – | 2 trials; 0 violations | – |\n",
		"| queue | 7 | 2.0 | 12,345 | 1,000 jobs | 1 of 2 | 1.2 s | 2 lost |\n",
		"| kill | 3 |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q:\n%s", want, page)
		}
	}
	for _, want := range []string{
		"1,240 kills and 0 stops of real processes, 2 kills of database servers: 1 violations<!--",
		"7 lives in 2.0 hours of virtual time with 3 faults: 2 violations<!--",
	} {
		if !strings.Contains(page, want) || !strings.Contains(front, want) {
			t.Errorf("the pages do not contain %q:\n%s\n%s", want, page, front)
		}
	}
	if err := run(dir, filepath.Join(dir, "servers.json"), filepath.Join(dir, "injected.md"), filepath.Join(dir, "front.md")); err == nil {
		t.Error("a page without markers was written")
	}
}
