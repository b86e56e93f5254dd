package simserver

import (
	"unicode/utf8"
)

// The tokenizer is made up but behaves like a byte-level BPE one: a token is
// up to four ASCII letters of a word, the first with the space before it;
// everything else is one token per byte, so that other scripts take several
// tokens per character. About four characters of English make a token. It is
// reversible, and joining two texts can merge a token at the seam.
//
// Ids are the byte for single bytes, then the special tokens, then pieces.
const (
	tokenEOS      = 256 + iota // end of the answer, no text
	tokenBOS                   // begins every prompt
	tokenStart                 // begins a message of the chat template
	tokenEnd                   // ends one
	tokenThinkEnd              // ends thinking, no text
	tokenPad                   // no text
	tokenTool                  // begins a tool call, no text
	tokenPieces   = 1000       // first piece
)

// specialText is what return_token_strs shows for the tokens without text.
var specialText = map[int32]string{
	tokenEOS: "<|eos|>", tokenBOS: "<|bos|>", tokenStart: "<|start|>", tokenEnd: "<|end|>",
	tokenThinkEnd: "</think>", tokenPad: "<|pad|>", tokenTool: "<tool_call>",
}

const (
	pieceLetters = 4
	pieceBase    = 53 // 26 lower, 26 upper, 0 for none
	pieceSpace   = pieceBase * pieceBase * pieceBase * pieceBase
	tokenLimit   = tokenPieces + 2*pieceSpace // first id that is none
)

func letterDigit(b byte) int32 {
	switch {
	case 'a' <= b && b <= 'z':
		return int32(b-'a') + 1
	case 'A' <= b && b <= 'Z':
		return int32(b-'A') + 27
	}
	return 0
}

// appendTokens appends the tokens of text. Any bytes are accepted.
func appendTokens[T string | []byte](dst []int32, text T) []int32 {
	for i := 0; i < len(text); {
		id, j := int32(0), i
		if text[i] == ' ' && i+1 < len(text) && letterDigit(text[i+1]) != 0 {
			id, j = pieceSpace, i+1
		}
		first := j
		for scale := int32(1); j < len(text) && j-first < pieceLetters; j++ {
			d := letterDigit(text[j])
			if d == 0 {
				break
			}
			id += d * scale
			scale *= pieceBase
		}
		if j == first {
			dst = append(dst, int32(text[i]))
			i++
			continue
		}
		dst = append(dst, tokenPieces+id)
		i = j
	}
	return dst
}

// appendTokenText appends the bytes of a token; special and unknown tokens
// have none.
func appendTokenText(dst []byte, id int32) []byte {
	switch {
	case 0 <= id && id < 256:
		return append(dst, byte(id))
	case id < tokenPieces || id >= tokenLimit:
		return dst
	}
	id -= tokenPieces
	if id >= pieceSpace {
		dst = append(dst, ' ')
		id -= pieceSpace
	}
	for ; id > 0; id /= pieceBase {
		switch d := id % pieceBase; {
		case d == 0: // not a piece that appendTokens makes
		case d <= 26:
			dst = append(dst, byte('a'+d-1))
		default:
			dst = append(dst, byte('A'+d-27))
		}
	}
	return dst
}

// detokenize returns the text of ids, with U+FFFD for what is not UTF-8.
func detokenize(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = appendTokenText(b, id)
	}
	return validUTF8(b)
}

func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// A message is one entry of a chat request, its content flattened to text.
type message struct {
	role, text string
}

// appendChat appends the tokens of the chat template over messages.
func appendChat(dst []int32, messages []message, addGenerationPrompt bool) []int32 {
	dst = append(dst, tokenBOS)
	for _, m := range messages {
		dst = append(dst, tokenStart)
		dst = appendTokens(dst, m.role)
		dst = append(dst, '\n')
		dst = appendTokens(dst, m.text)
		dst = append(dst, tokenEnd, '\n')
	}
	if addGenerationPrompt {
		dst = append(dst, tokenStart)
		dst = appendTokens(dst, "assistant\n")
	}
	return dst
}

// mix is a 64-bit hash step (splitmix64's finaliser over a running value).
func mix(h, v uint64) uint64 {
	h ^= v + 0x9e3779b97f4a7c15 + h<<6 + h>>2
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func hashString(h uint64, s string) uint64 {
	for i := 0; i < len(s); i++ {
		h = mix(h, uint64(s[i]))
	}
	return mix(h, uint64(len(s)))
}

// blockHashes returns one hash for each whole block of ids, each covering
// everything before it, and a hash of all ids.
func blockHashes(ids []int32, blockSize int, salt uint64) (blocks []uint64, all uint64) {
	h := salt
	blocks = make([]uint64, 0, len(ids)/blockSize)
	for i, id := range ids {
		h = mix(h, uint64(id))
		if (i+1)%blockSize == 0 {
			blocks = append(blocks, h|1) // never 0, which means "no hash"
		}
	}
	return blocks, mix(h, uint64(len(ids)))
}
