package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An instruction is an instruction of a Dockerfile with its continuation lines.
type instruction struct {
	line       int
	name, rest string
}

// instructions reads a Dockerfile line by line.
func instructions(text string) (all []instruction) {
	open := false // the previous line ended in a backslash
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		part, more := strings.CutSuffix(line, `\`)
		if part = strings.TrimSpace(part); open {
			all[len(all)-1].rest += " " + part
		} else {
			name, rest, _ := strings.Cut(part, " ")
			all = append(all, instruction{i + 1, name, strings.TrimSpace(rest)})
		}
		open = more
	}
	return all
}

var (
	fromLine   = regexp.MustCompile(`^([a-z0-9./-]+):([a-z0-9.-]+)(@sha256:[0-9a-f]{64})?( AS [a-z]+)?$`)
	secretWord = regexp.MustCompile(`(?i)secret|token|passw|credential|_key\b|database_url|://[^/\s]*@`)
)

// dockerProblems returns what is wrong with a Dockerfile that builds the program with a version of Go.
func dockerProblems(text, version string) (all []string) {
	wrong := func(i instruction, format string, args ...any) {
		all = append(all, fmt.Sprintf("%d: %s: ", i.line, i.name)+fmt.Sprintf(format, args...))
	}
	last := map[string]instruction{} // of the current stage
	for _, i := range instructions(text) {
		switch i.name {
		case "FROM":
			clear(last)
			m := fromLine.FindStringSubmatch(i.rest)
			switch {
			case m == nil || m[2] == "latest":
				wrong(i, "%q names no version", i.rest)
			case m[1] == "golang" && m[2] != version:
				wrong(i, "go.mod says Go %s", version)
			}
		case "ENV", "ARG":
			if secretWord.MatchString(i.rest) {
				wrong(i, "a secret would be in the image")
			}
		case "ENTRYPOINT", "CMD", "HEALTHCHECK":
			command := i.rest
			if i.name == "HEALTHCHECK" {
				_, command, _ = strings.Cut(i.rest, "CMD ")
			}
			var words []string
			if err := json.Unmarshal([]byte(command), &words); err != nil || len(words) == 0 {
				wrong(i, "is no list of words, and the image has no shell")
			} else if i.name != "CMD" && words[0] != "/usr/local/bin/dbcron" {
				wrong(i, "%q is not in the image", words[0])
			}
		case "USER":
			if user, _, _ := strings.Cut(i.rest, ":"); user == "root" || strings.Trim(user, "0") == "" {
				wrong(i, "is root")
			}
		case "WORKDIR", "COPY", "RUN":
		default: // including ADD, which fetches URLs
			wrong(i, "is not known here")
		}
		last[i.name] = i
	}
	for _, name := range []string{"USER", "HEALTHCHECK", "ENTRYPOINT", "CMD"} {
		if _, ok := last[name]; !ok {
			all = append(all, "the last stage has no "+name)
		}
	}
	return all
}

// The test reads the Dockerfile without building it: CI has no Docker.
func TestDockerfile(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	text, err := os.ReadFile("compose/Dockerfile")
	if err != nil || found == nil {
		t.Fatal(err, found)
	}
	good, version := string(text), string(found[1])
	for _, p := range dockerProblems(good, version) {
		t.Errorf("compose/Dockerfile:%s", p)
	}
	for _, c := range []struct{ from, to, want string }{
		{"FROM golang:", "FROM golang:1.1", "FROM: go.mod says Go " + version},
		{"FROM golang:" + version, "FROM golang:latest", "FROM: \"golang:latest AS build\" names no version"},
		{"FROM gcr.io/distroless/static-debian12:nonroot", "FROM debian", `FROM: "debian" names no version`},
		{"USER 65532:65532", "USER root", "USER: is root"},
		{"USER 65532:65532", "USER 0:0", "USER: is root"},
		{"USER 65532:65532\n", "", "the last stage has no USER"},
		{"HEALTHCHECK --", "HEALTHCHEK --", "HEALTHCHEK: is not known here"},
		{`CMD ["/usr/local/bin/dbcron", "doctor"`, `CMD ["/usr/bin/curl", "doctor"`, `HEALTHCHECK: "/usr/bin/curl" is not in the image`},
		{`ENTRYPOINT ["/usr/local/bin/dbcron"]`, "ENTRYPOINT /usr/local/bin/dbcron", "ENTRYPOINT: is no list of words"},
		{`ENTRYPOINT ["/usr/local/bin/dbcron"]`, "", "the last stage has no ENTRYPOINT"},
		{"USER 65532", "ADD https://example.org/x /x\nUSER 65532", "ADD: is not known here"},
		{"USER 65532", "ENV DBCRON_DATABASE_URL=postgres://dbcron@db/app\nUSER 65532", "ENV: a secret would be in the image"},
		{"ARG VERSION", "ARG DBCRON_SECRET=x VERSION", "ARG: a secret would be in the image"},
	} {
		bad := strings.Replace(good, c.from, c.to, 1)
		all := dockerProblems(bad, version)
		if !slices.ContainsFunc(all, func(p string) bool { return strings.Contains(p, c.want) }) || bad == good {
			t.Errorf("with %q for %q there is %q, want %q", c.to, c.from, all, c.want)
		}
	}
}
