package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServeAndGet(t *testing.T) {
	dir := t.TempDir()
	want := bytes.Repeat([]byte("weights "), 1<<20)
	files := []string{filepath.Join(dir, "model.bin"), filepath.Join(dir, "config.json")}
	for i, data := range [][]byte{want, []byte("{}")} {
		if err := os.WriteFile(files[i], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	notes, write := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- run(ctx, append([]string{"-listen", "127.0.0.1:0"}, files...), io.Discard, write)
		write.Close()
	}()
	text := ""
	buffer := make([]byte, 1000)
	address := ""
	for address == "" {
		n, err := notes.Read(buffer)
		if err != nil {
			t.Fatal(err, <-served)
		}
		text += string(buffer[:n])
		if _, after, ok := strings.Cut(text, "serving 2 files at "); ok && strings.HasSuffix(after, "\n") {
			address = strings.TrimSpace(after)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, notes) }()
	var list, got bytes.Buffer
	if err := run(ctx, []string{"-peer", address}, &list, io.Discard); err != nil {
		t.Fatal(err)
	}
	if list.String() != "model.bin\t8388608\nconfig.json\t2\n" {
		t.Errorf("list:\n%s", list.String())
	}
	if err := run(ctx, []string{"-peer", address, "-get", "model.bin"}, &got, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the file is another")
	}
	if err := run(ctx, []string{"-peer", address, "-get", "readme"}, &got, io.Discard); err == nil || !strings.Contains(err.Error(), `it offers ["model.bin" "config.json"]`) {
		t.Errorf("a file that is not there: %v", err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestRefuses(t *testing.T) {
	var notes bytes.Buffer
	if err := run(t.Context(), nil, io.Discard, &notes); err == nil || !strings.Contains(err.Error(), "want the files to serve") || !strings.Contains(notes.String(), "-token-file") {
		t.Errorf("without files: %v\n%s", err, notes.String())
	}
	if err := run(t.Context(), []string{"-token-file", "nowhere", "main.go"}, io.Discard, &notes); err == nil || !strings.Contains(err.Error(), "token: ") {
		t.Errorf("without the token's file: %v", err)
	}
}
