#!/usr/bin/env python3
"""Writes small.json: a small byte-level BPE tokenizer and what the `tokenizers` package makes of texts.

usage: make_small.py OUT      needs tokenizers (made with 0.23)

"tokenizer": the text of a tokenizer.json with 700 tokens and added tokens of every kind of flag.
"cases": {text, ids (control tokens are plain text), ids_special}. "pieces": for the split rules
gpt2, digits+gpt2 and llama3, the byte lengths of the pieces of each text of strings.json by its i.
Left out: texts with characters newer than Unicode 14, on whose kind the releases of engines differ.
"""
import json
import os
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HERE = os.path.dirname(os.path.abspath(__file__))
ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def gpt2():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def llama3():
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def digits():
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2()])


def main():
    assert unicodedata.unidata_version == "14.0.0", "needs Python 3.11"
    strings = json.load(open(os.path.join(HERE, "strings.json")))
    strings = [s for s in strings if not any(unicodedata.category(c) == "Cn" for c in s["text"])]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = llama3()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=sorted(ALPHABET), show_progress=False)
    tokenizer.train_from_iterator([s["text"] for s in strings] * 3, trainer)
    tokenizer.add_special_tokens([
        AddedToken("<|begin|>", special=True, normalized=False),
        AddedToken("<|end|>", special=True, normalized=False),
        AddedToken("<|left|>", special=True, normalized=False, lstrip=True),
        AddedToken("<|right|>", special=True, normalized=False, rstrip=True)])
    tokenizer.add_tokens([
        AddedToken("<think>", special=False, normalized=False),
        AddedToken("word", special=False, normalized=True, single_word=True),
        AddedToken("   ", special=False, normalized=True),
        AddedToken("<|end|><think>", special=False, normalized=False)])
    texts = [s["text"] for s in strings] + [
        "a<|begin|>b", "<|begin|><|end|>", "x  <|left|>  y", "x  <|right|>  y", "<|right|>\n\n<|left|>", " <|left|>",
        "a word here", "sword words word", "word", "wordword", "a   b      c", "<think>x</think>", "<|end|><think>",
        "<|end|> <think>", "<|en<|end|>d|>", "  <|right|>   <|left|>  ", "<|left|><|left|>", "é<|left|>é word é"]
    cases = []
    for text in texts:
        tokenizer.encode_special_tokens = True
        case = {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
        tokenizer.encode_special_tokens = False
        special = tokenizer.encode(text, add_special_tokens=False).ids
        if special != case["ids"]:
            case["ids_special"] = special
        cases.append(case)
    pieces = {}
    for name, rule in (("gpt2", gpt2()), ("digits", digits()), ("llama3", llama3())):
        pieces[name] = [[s["i"], [len(p) for p, _ in rule.pre_tokenize_str(s["text"])]] for s in strings]
    with open(sys.argv[1], "w") as f:
        json.dump({"tokenizer": tokenizer.to_str(), "cases": cases, "pieces": pieces}, f, separators=(",", ":"))
        f.write("\n")
    print(tokenizer.get_vocab_size(), "tokens", len(cases), "cases")


if __name__ == "__main__":
    main()
