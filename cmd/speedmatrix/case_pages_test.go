package main

import (
	"encoding/csv"
	"path/filepath"
	"strings"
	"testing"
)

// rowOf returns a row of a run's cells.csv by its columns.
func rowOf(t *testing.T, site, run, phase, context, concurrency string) map[string]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(readAll(t, filepath.Join(site, "runs", run, "cells.csv")))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, name := range rows[0] {
			m[name] = row[i]
		}
		if m["phase"] == phase && m["context_tokens"] == context && m["concurrency"] == concurrency {
			return m
		}
	}
	t.Fatalf("cells.csv has no row %s %s %s", phase, context, concurrency)
	return nil
}
