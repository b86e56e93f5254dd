// Package format holds the number formats of the pages. Every function is
// pure, rounds half to even on the exact value of its argument, writes an em
// dash for what is not a finite number, and knows no locale and no zone.
//
// It must not know what the numbers mean: no run, no cell, no HTML.
package format

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Unknown stands where there is no number.
const Unknown = "—"

// Context writes a context length in tokens: whole multiples of 1,024 as
// "8K", rounded down; under 1,024 the plain number.
func Context(tokens int32) string {
	if tokens < 1024 {
		return strconv.Itoa(int(tokens))
	}
	return strconv.Itoa(int(tokens)/1024) + "K"
}

// Contexts returns the label of each of the given context lengths. Lengths
// that would share a label are plain token counts, so labels are unique.
func Contexts(tokens []int32) map[int32]string {
	sharing := map[string]map[int32]bool{}
	for _, t := range tokens {
		l := Context(t)
		if sharing[l] == nil {
			sharing[l] = map[int32]bool{}
		}
		sharing[l][t] = true
	}
	labels := map[int32]string{}
	for l, lengths := range sharing {
		for t := range lengths {
			labels[t] = l
			if len(lengths) > 1 {
				labels[t] = strconv.Itoa(int(t))
			}
		}
	}
	return labels
}

// TokPerS writes a rate for a table: one decimal under 10,000 ("1,330.0"),
// thousands from there ("16.2K"), millions from 1,000,000 ("1.2M"). The
// exact rate decides which, not the rounded one.
func TokPerS(v float64) string { return rate(v, 1) }

// TokPerSWhole writes a rate for a card: as TokPerS, but whole under 10,000
// ("8,627").
func TokPerSWhole(v float64) string { return rate(v, 0) }

func rate(v float64, decimals int) string {
	switch {
	case !finite(v):
		return Unknown
	case math.Abs(v) >= 1_000_000:
		return strings.TrimSuffix(decimal(v, 1_000_000, 1), ".0") + "M"
	case math.Abs(v) >= 10_000:
		return strings.TrimSuffix(decimal(v, 1_000, 1), ".0") + "K"
	}
	return decimal(v, 1, decimals)
}

// Millis writes microseconds as whole milliseconds: "10,414 ms".
func Millis(us float64) string { return unit(us, 1_000, 0, " ms") }

// Millis1 writes microseconds as milliseconds with one decimal: "4.5 ms".
func Millis1(us float64) string { return unit(us, 1_000, 1, " ms") }

// Seconds1 writes microseconds as seconds with one decimal: "30.0 s".
func Seconds1(us float64) string { return unit(us, 1_000_000, 1, " s") }

// One writes a number with one decimal: "15.4".
func One(v float64) string { return unit(v, 1, 1, "") }

// Two writes a number with two decimals: "3.41".
func Two(v float64) string { return unit(v, 1, 2, "") }

// Whole writes a whole number with commas: "6,618".
func Whole(v float64) string { return unit(v, 1, 0, "") }

// Int writes an integer with commas: "4,096".
func Int(v int64) string { return group(strconv.FormatInt(v, 10)) }

// GiB writes bytes as whole GiB without the unit: "96".
func GiB(bytes int64) string {
	return round(new(big.Rat).SetFrac64(bytes, 1<<30), 0)
}

// Duration writes microseconds as seconds with as many decimals as it takes
// to be exact: "30 s", "2.5 s".
func Duration(us int64) string {
	s := round(new(big.Rat).SetFrac64(us, 1_000_000), 6)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + " s"
}

func unit(v float64, scale int64, decimals int, suffix string) string {
	if !finite(v) {
		return Unknown
	}
	return decimal(v, scale, decimals) + suffix
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// decimal writes v / scale, a power of ten. The division is exact: dividing
// as float64 could move a value onto a tie or off it.
func decimal(v float64, scale int64, decimals int) string {
	step := scale // of the last decimal, in units of v
	for range decimals {
		step /= 10
	}
	switch {
	case scale == 1:
		return grouped(strconv.FormatFloat(v, 'f', decimals, 64)) // exact, ties to even
	case step > 1 && math.Abs(v) < 1<<53:
		return grouped(point(steps(v, step), decimals))
	}
	r := new(big.Rat).SetFloat64(v)
	return round(r.Quo(r, new(big.Rat).SetInt64(scale)), decimals)
}

// steps returns v / step, rounded, ties to even. |v| is under 2^53 and step
// is even.
func steps(v float64, step int64) int64 {
	whole, rest := math.Modf(math.Abs(v))
	n := int64(whole)
	q, over := n/step, 2*(n%step)
	if over > step || over == step && (rest > 0 || q%2 == 1) {
		q++
	}
	if v < 0 {
		return -q
	}
	return q
}

// point writes n with its last digits behind a point.
func point(n int64, decimals int) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	digits := strconv.FormatInt(n, 10)
	if pad := decimals + 1 - len(digits); pad > 0 {
		digits = "0000000"[:pad] + digits
	}
	if decimals == 0 {
		return sign + digits
	}
	at := len(digits) - decimals
	return sign + digits[:at] + "." + digits[at:]
}

// grouped puts commas into a decimal number, and takes the sign off a zero.
func grouped(s string) string {
	if strings.HasPrefix(s, "-") && strings.Trim(s, "-0.") == "" {
		s = s[1:]
	}
	whole, decimals, found := strings.Cut(s, ".")
	if !found {
		return group(whole)
	}
	return group(whole) + "." + decimals
}

// round writes r with the given number of decimals, ties to even, and commas.
func round(r *big.Rat, decimals int) string {
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil)
	n := new(big.Int).Mul(new(big.Int).Abs(r.Num()), ten)
	q, rest := n.QuoRem(n, r.Denom(), new(big.Int))
	switch rest.Lsh(rest, 1).Cmp(r.Denom()) {
	case 1:
		q.Add(q, big.NewInt(1))
	case 0:
		q.Add(q, big.NewInt(int64(q.Bit(0))))
	}
	negative := r.Sign() < 0 && q.Sign() != 0 // no "-0.0"
	digits := q.String()
	if pad := decimals + 1 - len(digits); pad > 0 {
		digits = strings.Repeat("0", pad) + digits
	}
	point := len(digits) - decimals
	s := group(digits[:point])
	if decimals > 0 {
		s += "." + digits[point:]
	}
	if negative {
		s = "-" + s
	}
	return s
}

// group puts commas between the thousands of an integer.
func group(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	if len(digits) <= 3 {
		return sign + digits
	}
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return sign + b.String()
}
