// Command report shows what the measuring programs wrote, as a table, and
// puts it into docs/performance.md. It must not measure anything.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"speedmatrix/bench/figure"
)

const (
	begin = "<!-- figures: written by make performance -->"
	end   = "<!-- end of figures -->"
)

func main() {
	doc := flag.String("doc", "", "put the figures into this `file`, between its markers, and print nothing")
	flag.Parse()
	if err := run(*doc, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// run reads the JSON lines of files, in their order.
func run(doc string, files []string) error {
	var all bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all.Write(data)
	}
	r, err := figure.Read(&all)
	if err != nil {
		return err
	}
	if doc == "" {
		fmt.Print(r.Text())
		return nil
	}
	old, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	text, err := figure.Between(string(old), begin, end, "\n"+r.Markdown()+"\n")
	if err != nil {
		return fmt.Errorf("%s: %w", doc, err)
	}
	return os.WriteFile(doc, []byte(text), 0o644)
}
