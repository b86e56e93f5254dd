"""Hold the queries of docs/sql.md against speedmatrix inspect --json.

Usage: duckdb_check.py RUN… [--speedmatrix BINARY] [--sql FILE]

Runs every query of the document with DuckDB over each run directory and
compares each figure that a query and inspect both name. DuckDB shares no
code with this project, so agreement says that the files mean what they say.

Exit status: 0 all equal; 1 a difference, a query that failed, or nothing to
compare; 2 wrong use.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

import duckdb

# Cells whose figures no SQL knows: docs/method.md fails requests for reasons
# that the queries leave out, and nothing was recorded of the others.
SKIPPED = {"failed", "not-run", "over-capacity"}


def queries(path):
    """Return (name, SQL) of each fenced query of the document, in order."""
    with open(path, encoding="utf-8") as f:
        fences = re.findall(r"^```sql\n-- name: (.+?)\n(.*?)^```$", f.read(), re.M | re.S)
    if len(fences) < 8:
        sys.exit(f"{path}: found {len(fences)} named queries, want all of them")
    return fences


def rows_of(sql_file, run_dir):
    """Run all queries over one run; return (query name, row) pairs."""
    found = []
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(run_dir, os.path.join(work, "results", "run"))
        con = duckdb.connect()
        old = os.getcwd()
        os.chdir(work)
        try:
            for name, sql in queries(sql_file):
                try:
                    result = con.execute(sql)
                except duckdb.Error as e:
                    sys.exit(f"{sql_file}: query {name!r}: {e}")
                if sql.lstrip().upper().startswith("CREATE"):
                    continue
                columns = [c[0] for c in result.description]
                found += [(name, dict(zip(columns, row))) for row in result.fetchall()]
        finally:
            os.chdir(old)
            con.close()
    return found


def equal(a, b):
    if a is None or b is None:
        return a is None and b is None
    return math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-9)


def check(run_dir, sql_file, binary):
    """Print each difference; return (compared figures, differences)."""
    out = subprocess.run([binary, "inspect", run_dir, "--json"], check=True, stdout=subprocess.PIPE).stdout
    run = json.loads(out, parse_constant=lambda c: sys.exit(f"inspect --json printed {c}"))
    cells = {(c["phase"], c["context_tokens"], c["concurrency"]): c for c in run["prefill"] + run["decode"]}
    compared = different = 0
    seen = set()
    for name, row in rows_of(sql_file, run_dir):
        phase = name.split()[0]
        if phase not in ("prefill", "decode"):
            continue
        key = (phase, row["context_tokens"], row.get("concurrency", 1))
        cell = cells[key]
        if cell["status"] in SKIPPED:
            continue
        seen.add(key)
        figures = cell["figures"] or cell["discarded_figures"]
        for column, got in row.items():
            if column not in figures:
                continue
            want = figures[column]["value"] if figures[column] else None
            compared += 1
            if not equal(got, want):
                different += 1
                print(f"{run_dir}: {cell['name']}: {column}: SQL has {got}, inspect {want}")
    for key, cell in cells.items():
        if cell["status"] not in SKIPPED and key not in seen:
            different += 1
            print(f"{run_dir}: {cell['name']}: no query has a row for it")
    return compared, different


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(usage="duckdb_check.py RUN… [--speedmatrix BINARY] [--sql FILE]")
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--speedmatrix", default="speedmatrix")
    parser.add_argument("--sql", default=os.path.join(here, "..", "docs", "sql.md"))
    args = parser.parse_args()
    failed = False
    for run_dir in args.runs:
        compared, different = check(run_dir, args.sql, args.speedmatrix)
        print(f"{run_dir}: {compared} figures compared, {different} differences")
        failed = failed or different > 0 or compared == 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
