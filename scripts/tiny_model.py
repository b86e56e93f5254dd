#!/usr/bin/env python3
"""Write a tiny random-weight model directory that a real vLLM server can load.

    python tiny_model.py DIRECTORY

The directory holds a model configuration, a tokenizer and a chat template, but
no weight files: the server is started with `--load-format dummy`, which fills
the weights with tiny random numbers. The logits are then almost equal, so
sampling at temperature 1 gives a nearly uniform stream of tokens, which is what
a speed test wants: text that never settles into a loop. (At temperature 0 the
next token depends only on the last one, so the output falls into a cycle.)

The tokenizer is a byte-level BPE trained on text made here from word lists and
a seeded generator, so every string round-trips and the same files come out each
time. The only dependency is the `tokenizers` library.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

SEED = 20261130
VOCAB_SIZE = 2048
SENTENCES = 20_000
CONTEXT = 32_768

# Order fixes the ids: the trainer numbers special tokens from 0.
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
END_OF_TEXT, IM_START, IM_END, PAD = range(len(SPECIAL_TOKENS))

# Ordinary tokens as far as decoding goes, so that the text shows them, but never
# split: they let the server be started with a reasoning parser.
THINK_TOKENS = ["<think>", "</think>"]

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

COMMON_WORDS = """
the of and to in a is that for it as was with be by on not he his but at are
this have from or had an they which one you were all her she there would their
we him been has when who will no more if out so up said what its about than into
them can only other time new some could these two may first then do any like my
now over such our man me even most made after also did many off before must well
back through years much where your way down should because long each just state
people those too mr how little good world make very year still see own work men
day get here old life both between being under three never know same last another
while us might great go come since against right came take used himself few house
use place during high without again home around small however found part thought
went say general once upon school every does got united left number course war
until always away something fact water public though less put thing almost hand
enough far took head yet government system better set told nothing night end why
called eyes find going look asked later point knew next city business case group
give days young let room word given order second form social several present
""".split()

TOPIC_WORDS = """
server token cache memory model context request stream latency throughput decode
prefill batch queue kernel tensor layer vector matrix window schedule measure
sample second percent average median signal network packet buffer thread process
river mountain forest garden window bridge station harbour island valley winter
summer morning evening letter music paper copper silver engine machine circuit
measurement observation experiment hypothesis calculation temperature pressure
architecture foundation cathedral observatory laboratory manufacturer electricity
""".split()

# Words outside ASCII, so that the vocabulary has whole multi-byte characters as
# well as the single bytes that a byte-level tokenizer falls back to.
OTHER_WORDS = """
café naïve über straße señor façade œuvre Ångström smörgåsbord žluťoučký kůň
скорость память сервер модель время запрос привет мир
ταχύτητα μνήμη λόγος κόσμος
速度 記憶 模型 上下文 時間 測試 こんにちは 世界 サーバー 속도 모델 기억
שלום זמן سلام سرعة ज्ञान समय
→ … – “ ” € ± µ ° × 🙂 🚀 🌍 👍
""".split()

ENDINGS = ["", "", "", "", "s", "ed", "ing", "er", "ly", "ness", "ment", "able"]
PREFIXES = ["", "", "", "", "un", "re", "over", "inter"]


def sentence(rng: random.Random) -> str:
    """One line of word salad with the punctuation and digits of ordinary text."""
    words = []
    for _ in range(rng.randint(6, 18)):
        roll = rng.random()
        if roll < 0.55:
            words.append(rng.choice(COMMON_WORDS))
        elif roll < 0.82:
            words.append(rng.choice(PREFIXES) + rng.choice(TOPIC_WORDS) + rng.choice(ENDINGS))
        elif roll < 0.94:
            words.append(rng.choice(OTHER_WORDS))
        else:
            words.append(str(rng.randrange(10 ** rng.randint(1, 4))))
    separators = rng.choices([" ", ", ", "; ", ": "], weights=[88, 8, 2, 2], k=len(words) - 1)
    text = words[0].capitalize()
    for separator, word in zip(separators, words[1:]):
        text += separator + word
    return text + rng.choice([".", ".", ".", "?", "!"])


def build_tokenizer() -> Tokenizer:
    rng = random.Random(SEED)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(THINK_TOKENS),
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((sentence(rng) for _ in range(SENTENCES)), trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in THINK_TOKENS])
    return tokenizer


def model_config(vocab_size: int) -> dict:
    # head_dim is one of the sizes that vLLM's CPU attention kernels have, and
    # the embeddings are not tied, since with tied ones a token would be its own
    # likeliest successor.
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": IM_END,
        "pad_token_id": PAD,
    }


def tokenizer_config() -> dict:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "bos_token": SPECIAL_TOKENS[END_OF_TEXT],
        "eos_token": SPECIAL_TOKENS[IM_END],
        "pad_token": SPECIAL_TOKENS[PAD],
        "additional_special_tokens": [SPECIAL_TOKENS[IM_START]],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def generation_config() -> dict:
    return {
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": [IM_END, END_OF_TEXT],
        "pad_token_id": PAD,
        "do_sample": True,
        "temperature": 1.0,
    }


def check_round_trip(tokenizer: Tokenizer) -> None:
    for text in ["plain words", "café 世界 🚀 mixed", "\tline\n\nbreaks  ", "\u0000\u07ff\U0010ffff"]:
        ids = tokenizer.encode(text).ids
        back = tokenizer.decode(ids, skip_special_tokens=False)
        if back != text:
            raise SystemExit(f"tokenizer does not round-trip: {text!r} -> {ids} -> {back!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a tiny random-weight model directory.")
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory

    tokenizer = build_tokenizer()
    check_round_trip(tokenizer)

    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    files = {
        "config.json": model_config(tokenizer.get_vocab_size()),
        "tokenizer_config.json": tokenizer_config(),
        "generation_config.json": generation_config(),
    }
    for name, content in files.items():
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (directory / name).write_text(text, encoding="utf-8")
    print(f"{directory}: vocabulary of {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
