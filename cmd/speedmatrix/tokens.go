package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parseTokens reads a number of tokens as people write it: 8192, or 8K for
// 8 × 1,024, or 1M for 1,024 × 1,024.
func parseTokens(s string) (int32, error) {
	digits, scale := s, int64(1)
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 'k', 'K':
			digits, scale = s[:n-1], 1<<10
		case 'm', 'M':
			digits, scale = s[:n-1], 1<<20
		}
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 1 || n*scale > math.MaxInt32 {
		return 0, fmt.Errorf("%q is not a number of tokens, want such as 8192 or 8K", s)
	}
	return int32(n * scale), nil
}

// tokensFlag is a comma-separated list of token counts.
type tokensFlag []int32

func (f *tokensFlag) Set(s string) error {
	*f = nil
	for _, part := range strings.Split(s, ",") {
		n, err := parseTokens(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*f = append(*f, n)
	}
	return nil
}

func (f *tokensFlag) String() string {
	var parts []string
	for _, n := range *f {
		parts = append(parts, strconv.Itoa(int(n)))
	}
	return strings.Join(parts, ",")
}

func (f *tokensFlag) Type() string { return "tokens" }

// tokenFlag is one token count.
type tokenFlag int32

func (f *tokenFlag) Set(s string) error {
	n, err := parseTokens(s)
	if err == nil {
		*f = tokenFlag(n)
	}
	return err
}

func (f *tokenFlag) String() string { return strconv.Itoa(int(*f)) }

func (f *tokenFlag) Type() string { return "tokens" }

// bytesFlag is a size of memory: 96G is 96 GiB.
type bytesFlag int64

func (f *bytesFlag) Set(s string) error {
	digits := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "B"), "I")
	scale := int64(1)
	for suffix, v := range map[string]int64{"G": 1 << 30, "M": 1 << 20, "T": 1 << 40} {
		if d, ok := strings.CutSuffix(digits, suffix); ok {
			digits, scale = d, v
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/scale {
		return fmt.Errorf("%q is not a size, want such as 96G", s)
	}
	*f = bytesFlag(n * scale)
	return nil
}

func (f *bytesFlag) String() string { return strconv.FormatInt(int64(*f), 10) }

func (f *bytesFlag) Type() string { return "size" }
