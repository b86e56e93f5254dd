package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// caseIDs are the numbers of the 99 cases.
var caseIDs = []int{
	1, 3, 4, 6, 8, 10, 11, // K01 first token
	13, 15, 16, 18, 19, 21, 23, 25, // K02 token counts and gaps
	26, 27, 29, 31, 32, 35, 36, // K03 measuring window
	37, 38, 39, 40, 42, 44, 48, 49, // K04 SSE framing
	51, 53, 56, 57, 59, 61, 63, 65, 66, 67, 68, 69, // K05 server and link faults
	70, 72, 75, 77, 78, 79, // K06 capacity and lengths
	80, 82, 84, 85, // K07 metrics endpoint
	86, 88, 90, 92, 94, // K08 secrets and privacy
	95, 97, 99, 100, // K09 output behaviour
	101, 102, 105, // K10 prefix caching
	106, 107, // K11 machine state
	110, 111, 114, 116, 117, 119, 121, // K12 report arithmetic
	122, 124, 125, 128, 129, 131, 133, 135, 137, 138, 139, // K13 files, Parquet, interruption
	140, 142, 143, 144, 146, 147, 149, 151, // K14 pages
	153, 156, 158, 160, 162, 163, 164, // K15 comparing runs
}

// TestCasesTable holds docs/cases.md to the tests of the repository: every
// case has a row, in order, and the test of every row is there.
func TestCasesTable(t *testing.T) {
	if len(caseIDs) != 99 {
		t.Fatalf("%d ids, want 99", len(caseIDs))
	}
	doc, err := os.ReadFile("../../docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| BR-(\d{3}) \| K\d\d [^|]+ \| [^|]+ \| ([^|]+) \|$`)
	var ids []int
	tests := map[int]string{}
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		var id int
		fmt.Sscanf(m[1], "%d", &id)
		ids, tests[id] = append(ids, id), m[2]
	}
	if !slices.Equal(ids, caseIDs) {
		t.Errorf("rows of docs/cases.md: %d, want %d: the first that differs is %v", ids, caseIDs, firstDifference(ids, caseIDs))
	}
	names := testNames(t, "../..")
	for _, id := range ids {
		name := strings.Trim(tests[id], "`")
		name = name[strings.LastIndex(name, "/")+1:] // of a subtest, its own name
		if !names[name] {
			t.Errorf("BR-%03d: no test %q in the repository", id, name)
		}
		if !strings.Contains(name, fmt.Sprintf("BR%03d", id)) && !strings.Contains(name, fmt.Sprintf("BR-%03d", id)) {
			t.Errorf("BR-%03d: test %q does not have its number", id, name)
		}
	}
}

func firstDifference(a, b []int) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i]
		}
	}
	return -1
}

// testNames returns the test functions below root that have a case's number,
// and the strings, as the names of subtests, that do.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	number := regexp.MustCompile(`BR-?\d{3}`)
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") && number.MatchString(n.Name.Name) {
					names[n.Name.Name] = true
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					for _, m := range number.FindAllString(n.Value, -1) {
						names[m] = true
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
