package main

import (
	"math"

	"speedmatrix/ingest/runlog"
)

// An ideal is how many bytes an ideal compressor with a modest model of the
// events would take for them.
type ideal struct{ gaps, lengths, tokens, text float64 }

func (i ideal) all() float64 { return i.gaps + i.lengths + i.tokens + i.text }

func idealOf(ev *runlog.Events) ideal {
	var gaps, lengths, tokens []int64
	for i := range ev.Len() {
		if i > 0 && ev.Seq[i] > 0 {
			gaps = append(gaps, ev.TUs[i]-ev.TUs[i-1])
		}
		lengths = append(lengths, int64(len(ev.TextAt(i))))
		tokens = append(tokens, int64(ev.Tokens[i]))
	}
	return ideal{gaps: entropy(gaps), lengths: entropy(lengths), tokens: entropy(tokens), text: mixed(ev.Text)}
}

// entropy returns the order-0 entropy of the values, all of them, in bytes.
func entropy(values []int64) float64 {
	counts := map[int64]float64{}
	for _, v := range values {
		counts[v]++
	}
	bits := 0.0
	for _, n := range counts {
		bits -= n * math.Log2(n/float64(len(values)))
	}
	return bits / 8
}

// mixed returns the bytes that an adaptive model takes for a text: it
// predicts every bit from the last one to six bytes and mixes the
// predictions by how well each did before, as the PAQ family does. It comes
// out below PPMd, the best of the usual compressors for text.
func mixed(text []byte) float64 {
	const orders, tableBits = 6, 22
	type slot struct {
		p    uint16 // probability of a 1, of 65536
		seen uint16
	}
	var tables [orders][]slot
	for i := range tables {
		tables[i] = make([]slot, 1<<tableBits)
		for j := range tables[i] {
			tables[i][j].p = 1 << 15
		}
	}
	stretch := func(p float64) float64 { return math.Log(p / (1 - p)) }
	var weights [256][2 * orders]float64 // by the bits of the byte so far
	for i := range weights {
		for j := range weights[i] {
			weights[i][j] = 0.2
		}
	}
	var bits float64
	var hash [orders]uint64
	var at [orders]*slot
	var in [2 * orders]float64
	for n, c := range text {
		for o := range orders { // order 1 is the last byte
			h := uint64(o + 1)
			for k := 1; k <= o+1 && k <= n; k++ {
				h = (h + uint64(text[n-k]) + 1) * 0x9E3779B97F4A7C15
				h ^= h >> 29
			}
			hash[o] = h
		}
		partial := uint64(1)
		for b := 7; b >= 0; b-- {
			bit := float64(c >> b & 1)
			w := &weights[partial]
			dot := 0.0
			for o := range orders {
				at[o] = &tables[o][(hash[o]+partial*0xD6E8FEB86659FD93)*0x9E3779B97F4A7C15>>(64-tableBits)]
				s := stretch((float64(at[o].p) + 0.5) / 65536)
				sure := min(1, float64(at[o].seen)/4)
				in[2*o], in[2*o+1] = s, s*sure
				dot += w[2*o]*in[2*o] + w[2*o+1]*in[2*o+1]
			}
			p := min(max(1/(1+math.Exp(-dot)), 1e-4), 1-1e-4)
			if bit == 1 {
				bits -= math.Log2(p)
			} else {
				bits -= math.Log2(1 - p)
			}
			for i := range in {
				w[i] += 0.02 * (bit - p) * in[i]
			}
			for o := range orders {
				s := at[o]
				rate := 1 / (float64(s.seen) + 1.5)
				s.p = uint16(min(65535, max(0, float64(s.p)+(bit*65535-float64(s.p))*rate)))
				s.seen = min(s.seen+1, 60)
			}
			partial = partial<<1 | uint64(c>>b&1)
		}
	}
	return bits / 8
}
