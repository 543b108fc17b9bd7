package docs

import (
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The speeds that README.md names are those of benchmarks.md and figures.md, rounded: jobs a second to three digits, and the milliseconds
// of one caller to two or one. Its figures of reliability are TestFigures' subject; versions of engines are typed.
func TestSpeedsOfTheREADME(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	together := func(text string) string {
		return regexp.MustCompile(`(\d)[ ,](\d{3})\b`).ReplaceAllString(text, "$1$2")
	}
	rounded := func(f float64, digits int) string {
		scale := math.Pow(10, math.Floor(math.Log10(f))+1-float64(digits))
		return strconv.FormatFloat(math.Round(f/scale)*scale, 'g', 9, 64)
	}
	var written []string
	number := regexp.MustCompile(`\d+`)
	for line := range strings.Lines(together(read("benchmarks.md") + read("figures.md"))) {
		cells := strings.Split(line, "|")
		for _, cell := range cells[min(1, len(cells)):] {
			for _, n := range number.FindAllString(cell, -1) {
				if f, _ := strconv.ParseFloat(n, 64); f >= 1000 {
					written = append(written, rounded(f, 3))
				}
			}
		}
		if strings.Contains(line, "**dbcron on PostgreSQL**") {
			f, _ := strconv.ParseFloat(number.FindString(cells[3]), 64) // pairs or jobs a second of one caller
			written = append(written, rounded(1000/f, 2)+" ms", rounded(1000/f, 1)+" ms")
		}
	}
	page := regexp.MustCompile(`<!-- servers.sum -->.*?<!--`).ReplaceAllString(read("../README.md"), "")
	named := regexp.MustCompile(`\b\d+,\d{3}\b|\d\.\d+ ms`).FindAllString(page, -1)
	for _, n := range named {
		if !slices.Contains(written, together(n)) {
			t.Errorf("README.md says %s, which no table of benchmarks.md or figures.md does", n)
		}
	}
	if len(named) < 7 {
		t.Errorf("only %d speeds of README.md were compared: %v", len(named), named)
	}
}
