package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The picture of the tables, which architecture.md shows, has each of them, and no other.
func TestPictureOfTheTables(t *testing.T) {
	picture, err := os.ReadFile("pictures/tables.svg")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../sqlschema/migrations/postgres/00101_tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	made := regexp.MustCompile(`CREATE TABLE \{prefix\}(\w+)`).FindAllStringSubmatch(string(text), -1)
	if n := strings.Count(string(text), "CREATE TABLE"); len(made) != n || n < 30 {
		t.Fatalf("of %d tables, %d are seen", n, len(made))
	}
	var words []string
	for _, text := range regexp.MustCompile(`>([^<]+)</text>`).FindAllStringSubmatch(string(picture), -1) {
		words = append(words, regexp.MustCompile(`\w+`).FindAllString(text[1], -1)...)
	}
	for _, table := range made {
		if !slices.Contains(words, table[1]) {
			t.Errorf("the picture lacks %s", table[1])
		}
	}
	for _, word := range words {
		if strings.Contains(word, "_") && !slices.ContainsFunc(made, func(table []string) bool { return table[1] == word }) {
			t.Errorf("the picture has %s, which is no table", word)
		}
	}
}

// values.md names each setting whose column has another name, and only these: of the two names of a thing, readers of either find the other.
func TestColumnsWithOtherNames(t *testing.T) {
	page, err := os.ReadFile("values.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "columns of schedules have names of their own: ")
	text, _, _ = strings.Cut(text, ".")
	told := regexp.MustCompile("`([a-z_]+)`").FindAllString(text, -1)
	var want []string
	for _, file := range []string{"../scheduler/settings.go", "../queue/internal/store/settings.go"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, setting := range strings.Split(string(code), "setting.Of(")[1:] {
			name := regexp.MustCompile(`^"([a-z_]+)"`).FindStringSubmatch(setting)
			if column := regexp.MustCompile(`\.Column\("([a-z_]+)"\)`).FindStringSubmatch(setting); column != nil && name != nil {
				want = append(want, "`"+name[1]+"`", "`"+column[1]+"`")
			}
		}
	}
	slices.Sort(told)
	slices.Sort(want)
	if !slices.Equal(told, want) {
		t.Errorf("values.md names %v, and the tables of settings have %v", told, want)
	}
}

// other-programs.md names the versions of the programs that bench/peers measures.
func TestVersionsOfPeers(t *testing.T) {
	module, err := os.ReadFile("../bench/peers/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("other-programs.md")
	if err != nil {
		t.Fatal(err)
	}
	table := string(page)
	for _, peer := range []string{"riverqueue/river", "hibiken/asynq", "go-redsync/redsync/v4", "nats-io/nats-server/v2"} {
		version := regexp.MustCompile(regexp.QuoteMeta(peer) + ` v([0-9.]+)`).FindStringSubmatch(string(module))
		if version == nil || !strings.Contains(table, version[1]) {
			t.Errorf("%s is of version %v, which other-programs.md does not name", peer, version)
		}
	}
}

// Each program of this list that a page speaks of has a row in other-programs.md, with its version and how it is known. The list has programs about
// which a page is tempted to say something. Names without a statement, such as Redlock in a heading, and what is imported or only started,
// such as Prometheus, were looked at, and are not in it.
func TestOtherProgramsHaveASource(t *testing.T) {
	names := regexp.MustCompile(`\b(River|asynq|redsync|JetStream|Redis|etcd|Fireworq|bcron|cronie|supervisord|systemd|flock|nginx|Caddy|Traefik|HAProxy|` +
		`Slack|Mattermost|Nagios|EventBridge|Quartz|Spring|Airflow|Temporal|Celery|Sidekiq|BullMQ|Oban|pgmq|pg-boss|Graphile|Solid Queue|GoodJob|` +
		`PgBouncer|ProxySQL|pgcat|Supavisor|MaxScale|Patroni|Galera|Vitess|Citus|TiDB|CockroachDB|YugabyteDB|supercronic|Ofelia|gocron|Kafka|RabbitMQ)\b`)
	unproven := regexp.MustCompile(`(?m)^\| YugabyteDB, CockroachDB \|.*not tested \|$|^CockroachDB and YugabyteDB have not been tested\.$`)
	page, err := os.ReadFile("other-programs.md")
	if err != nil {
		t.Fatal(err)
	}
	table := string(page)
	sourced := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for _, name := range names.FindAllString(cells[min(1, len(cells)-1)], -1) {
			sourced[name] = len(cells) == 6 && strings.TrimSpace(cells[2]) != "" && strings.TrimSpace(cells[3]) != ""
		}
	}
	pages := []string{"../README.md"}
	for _, pattern := range []string{"*.md", "adr/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, more...)
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]bool{}
		for _, name := range names.FindAllString(unproven.ReplaceAllString(string(text), ""), -1) {
			if !sourced[name] && !told[name] {
				t.Errorf("%s speaks of %s, whose version and source are not in docs/other-programs.md", path, name)
			}
			told[name] = true
		}
	}
}
