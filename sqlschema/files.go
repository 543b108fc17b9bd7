package sqlschema

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed migrations
var migrations embed.FS

type file struct {
	Version int64
	Name    string
	path    string
	text    string // "" until it is read
}

// read returns a migration as it is written, with the names in braces.
func (f *file) read(folder fs.FS) (string, error) {
	text, err := fs.ReadFile(folder, f.path)
	return string(text), err
}

// names fills in {prefix} (of tables, with the schema) and {name} (of indexes, which have none).
func names(prefix, name string) *strings.Replacer {
	return strings.NewReplacer("{prefix}", prefix, "{name}", name)
}

// folder returns the folder of an engine's migrations.
func folder(engine string, further fs.FS) (fs.FS, error) {
	own, err := fs.Sub(migrations, path.Join("migrations", engine))
	if err != nil || further == nil {
		return own, err
	}
	rest, err := fs.Sub(further, engine)
	return both{own, rest}, err
}

// both is a folder with the files of two, the second's after the first's.
type both [2]fs.FS

func (b both) Open(name string) (fs.File, error) {
	opened, err := b[0].Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return b[1].Open(name)
	}
	return opened, err
}

func (b both) ReadDir(name string) ([]fs.DirEntry, error) {
	first, err := fs.ReadDir(b[0], name)
	second, err2 := fs.ReadDir(b[1], name)
	return slices.Concat(first, second), errors.Join(err, err2)
}

// filled is a file system of migrations that record their checksums, with their names filled in.
type filled struct {
	fs.FS
	names *strings.Replacer
}

func (f filled) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.FS, name) }

func (f filled) Open(name string) (fs.File, error) {
	opened, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := opened.Stat(); err != nil || info.IsDir() {
		return opened, err
	}
	text, err := io.ReadAll(opened)
	version, _, err2 := version(path.Base(name))
	if err := errors.Join(err, err2); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return filledFile{opened, strings.NewReader(f.names.Replace(recorded(version, string(text))))}, nil
}

type filledFile struct {
	fs.File
	text *strings.Reader
}

func (f filledFile) Read(p []byte) (int, error) { return f.text.Read(p) }

// files reads an engine's migrations in order, with what records their checksums, and with their names filled in. The
// further ones, if any, go on with the program's own.
func files(engine string, further fs.FS, prefix, name string) ([]file, error) {
	folder, err := folder(engine, further)
	if err != nil {
		return nil, err
	}
	all, err := numbered(folder)
	for i := range all {
		text, err := all[i].read(folder)
		if err != nil {
			return nil, err
		}
		all[i].text = names(prefix, name).Replace(recorded(all[i].Version, text))
	}
	return all, err
}

// numbered lists the migrations in a folder in order, without their text, which most commands do not need.
func numbered(folder fs.FS) (all []file, err error) {
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		version, name, err := version(e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, file{Version: version, Name: name, path: e.Name()})
	}
	return all, nil
}

// version returns the number and the name of a migration by its file's name.
func version(file string) (version int64, name string, err error) {
	number, name, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
	version, err = strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, "", fmt.Errorf("%s: %w", file, err)
	}
	return version, name, nil
}
