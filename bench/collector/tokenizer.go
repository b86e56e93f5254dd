package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeTokenizer makes a tokenizer of Hugging Face's form in dir, without a
// model and without the network: each byte is a token. Other clients want one
// for their prompts; the server counts tokens by itself.
func writeTokenizer(dir string) error {
	const end = 256
	vocab := map[string]int{"<end>": end}
	other := rune(256)
	for b := range 256 { // GPT-2's letters for bytes
		r := rune(b)
		if visible := b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE; !visible {
			r, other = other, other+1
		}
		vocab[string(r)] = b
	}
	bytes := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	for name, v := range map[string]any{
		"tokenizer.json": map[string]any{
			"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "post_processor": nil,
			"pre_tokenizer": bytes, "decoder": bytes,
			"added_tokens": []any{map[string]any{"id": end, "content": "<end>", "special": true,
				"single_word": false, "lstrip": false, "rstrip": false, "normalized": false}},
			"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
				"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []any{}},
		},
		"tokenizer_config.json": map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "unk_token": "<end>", "model_max_length": 1_000_000},
		"config.json":           map[string]any{"model_type": "gpt2", "vocab_size": end + 1, "bos_token_id": end, "eos_token_id": end},
	} {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("write tokenizer: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// book is text for clients that cut their prompts out of one.
func book() string {
	return strings.Repeat("It was a bright cold day and the clocks were striking. ", 4000)
}
