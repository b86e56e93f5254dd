package main

import (
	"encoding/csv"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
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

// seen returns the text of all elements of a name, a line each.
func seen(t *testing.T, page, element string) string {
	t.Helper()
	var b strings.Builder
	for n := range parseHTML(t, page).Descendants() {
		if n.Type == html.ElementNode && n.Data == element {
			b.WriteString(textOf(n) + "\n")
		}
	}
	return b.String()
}

func parseHTML(t *testing.T, page string) *html.Node {
	t.Helper()
	n, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

// attributes returns the values of the attributes of these names in a page.
func attributes(t *testing.T, page string, names ...string) []string {
	t.Helper()
	var list []string
	for n := range parseHTML(t, page).Descendants() {
		for _, a := range n.Attr {
			if slices.Contains(names, a.Key) {
				list = append(list, a.Val)
			}
		}
	}
	return list
}

// collapsed is a text with its white space as a browser shows it.
func collapsed(s string) string { return strings.Join(strings.Fields(s), " ") }
