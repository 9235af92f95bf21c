#!/usr/bin/env python3
"""Writes small tokenizer files of every kind into small/, and pieces.json: what the engines make of texts.

usage: make_pieces.py      needs sentencepiece 0.2.1, tokenizers 0.22.2, tiktoken, protobuf

pieces.json: {"texts": [...], file: {"ids": [of each text], "ids_special": {text's number: ids},
"decoded": {text's number: text}, "bytes": [hex of each id]}}. Ids are without begin and end token,
with control tokens plain; "ids_special", where the engine can parse them and that differs; "decoded" where the engine's text
of the ids is another than the text. No text holds a character newer than Unicode 14.
split_rules.json: {rule: [[i, [byte lengths]]]} of the strings of strings.json, by GGUF's names.
"""
import base64
import json
import os
import unicodedata

import sentencepiece
import tiktoken
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = os.path.join(HERE, "small")
MARK = "\u2581"
EXTRA = [" hello", "  hello  world ", "a\u2581b", "\u2581\u2581x", "\u00e9e\u0301", "\uff21\uff22\u3000\uff43", "\ufb01x",
         "\u2460\u2461", "x\u200by", "<sep>a<sep>", "a <sep> b", "aa", "aaa", "aaaa aaaaaaaa", "\x00\x01", "<0x41>", "<s>x</s>",
         "\u1100\u1161\u11a8", "A\u030a", "\u0344\u0301", "hello<mask>world", "<mask> x", "wordword word", "the them theme"]
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ONE_DIGIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
             r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

LETTERS = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
           "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-"
           "\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
           "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
           "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
           "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
           "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
           "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
           "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
           "\U000118a0-\U000118df\U0001e900-\U0001e943")


def texts():
    strings = json.load(open(os.path.join(HERE, "strings.json")))
    return [s["text"] for s in strings if not any(unicodedata.category(c) == "Cn" for c in s["text"])] + EXTRA


def sentencepiece_models(corpus):
    """name -> the bytes of a model file."""
    sentences = [line for text in corpus for line in text.split("\n") if line.strip() and "\x00" not in line]
    sentences += ["hello world", "the theme of them all", "word and words"] * 20
    out = {}

    def train(name, **options):
        writer = __import__("io").BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=writer, minloglevel=2, num_threads=1, hard_vocab_limit=False, **options)
        out[name] = writer.getvalue()

    identity = dict(normalization_rule_name="identity", remove_extra_whitespaces=False)
    train("bpe.model", model_type="bpe", vocab_size=700, byte_fallback=True, character_coverage=0.98, **identity)
    train("bpe_user.model", model_type="bpe", vocab_size=500, byte_fallback=True, character_coverage=0.98, add_dummy_prefix=False,
          user_defined_symbols=["<sep>", "\n", "\n\n", MARK * 2, MARK * 3, MARK * 4], control_symbols=["<mask>"], **identity)
    train("bpe_unknown.model", model_type="bpe", vocab_size=400, character_coverage=0.98, remove_extra_whitespaces=True,
          normalization_rule_name="identity")
    train("unigram.model", model_type="unigram", vocab_size=700, byte_fallback=True, character_coverage=0.98,
          user_defined_symbols=["<sep>"], **identity)
    rules = os.path.join(SMALL, "rules.tsv")
    with open(rules, "w") as f:
        for source, target in (("\uff21", "A"), ("\uff22", "B"), ("\uff43", "c"), ("\u3000", " "), ("\ufb01", "fi"), ("\u2460", "1"),
                               ("\u200b", ""), ("e\u0301", "\u00e9"), ("A\u030a", "\u00c5"), ("\t", " "), ("...", "\u2026")):
            f.write(" ".join("%X" % ord(c) for c in source) + "\t" + " ".join("%X" % ord(c) for c in target) + "\n")
    train("unigram_map.model", model_type="unigram", vocab_size=450, character_coverage=0.98, remove_extra_whitespaces=True,
          normalization_rule_tsv=rules, user_defined_symbols=["<sep>", "a<sep>"])
    os.remove(rules)
    # A piece that is unused falls apart into what it was made of.
    model = proto.ModelProto.FromString(out["bpe.model"])
    normal = [p for p in model.pieces if p.type == p.NORMAL and len(p.piece) > 2]
    for piece in normal[5:200:3]:
        piece.type = piece.UNUSED
    out["bpe_unused.model"] = model.SerializeToString()
    for name, data in out.items():  # what only training needs
        model = proto.ModelProto.FromString(data)
        model.ClearField("self_test_data")
        model.trainer_spec.ClearField("input")
        out[name] = model.SerializeToString()
    return out


def golden_of(corpus, encode, encode_special, decode, pieces):
    golden = {"ids": [encode(t) for t in corpus], "decoded": {}, "bytes": [p.hex() for p in pieces]}
    if encode_special is not None:
        golden["ids_special"] = {}
    for i, text in enumerate(corpus):
        if encode_special is not None and (special := encode_special(text)) != golden["ids"][i]:
            golden["ids_special"][str(i)] = special
        decoded = decode(golden["ids"][i])
        if decoded is not None and decoded != text:
            golden["decoded"][str(i)] = decoded
    return golden


def sentencepiece_golden(data, corpus):
    engine = sentencepiece.SentencePieceProcessor(model_proto=data)
    pieces = []
    for i in range(engine.get_piece_size()):
        piece = engine.id_to_piece(i)
        pieces.append(bytes([int(piece[3:5], 16)]) if engine.is_byte(i) else piece.replace(MARK, " ").encode())
    # An unknown token's text is a matter of taste.
    return golden_of(corpus, engine.encode, None,
                     lambda ids: None if engine.unk_id() in ids else engine.decode(ids), pieces)


def json_tokenizers(corpus):
    """name -> the object of a tokenizer.json."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    byte_tokens = ["<0x%02X>" % b for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=700, limit_alphabet=150, show_progress=False,
                                  special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens)
    tokenizer.train_from_iterator(corpus * 3, trainer)
    base = json.loads(tokenizer.to_str())
    base["added_tokens"] = [t for t in base["added_tokens"] if t["content"] not in byte_tokens]
    size = len(base["model"]["vocab"])

    def added(i, content, **flags):
        default = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
        return dict(id=size + i, content=content, **{**default, **flags})

    base["added_tokens"] += [added(0, "<mask>", special=True), added(1, "theme", normalized=True, single_word=True),
                             added(2, "<sep>", lstrip=True, rstrip=True)]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    back = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}

    def decoder(*more):
        return {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *more]}

    def metaspace(scheme, split):
        return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}

    def variant(normalizer, pre_tokenizer, decode, **changes):
        return {**base, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decode,
                "model": {**base["model"], **changes}}

    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, replace]}
    by_space = {"type": "Split", "pattern": {"String": MARK}, "behavior": "MergedWithPrevious", "invert": False}
    out = {"prepend.json": variant(prepend, None, decoder(strip)),
           "first.json": variant(None, metaspace("first", False), decoder(strip)),
           "split.json": variant({"type": "NFKC"}, metaspace("always", True), decoder(strip), byte_fallback=False),
           "replace.json": variant(replace, by_space, decoder(), ignore_merges=True)}
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    unigram.train_from_iterator(corpus, trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False))
    out["unigram.json"] = {**json.loads(unigram.to_str()), "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, replace]},
                           "pre_tokenizer": metaspace("always", True), "decoder": metaspace("always", True)}
    bytes_ = Tokenizer(models.BPE())
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bytes_.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    bytes_.add_tokens([AddedToken("e\u0301", normalized=True)])
    out["bytes.json"] = {**json.loads(bytes_.to_str()), "normalizer": {"type": "NFC"}, "decoder": {
        "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    return out


def json_golden(text, corpus):
    tokenizer = Tokenizer.from_str(text)

    def encode(string):
        tokenizer.encode_special_tokens = True
        return tokenizer.encode(string, add_special_tokens=False).ids

    def encode_special(string):
        tokenizer.encode_special_tokens = False
        return tokenizer.encode(string, add_special_tokens=False).ids

    unknown = tokenizer.token_to_id("<unk>")
    return golden_of(corpus, encode, encode_special,
                     lambda ids: None if unknown in ids else tokenizer.decode(ids, skip_special_tokens=False), [])


def tekken(corpus):
    """A tekken.json; its ranks are what byte pairs of the texts, learnt greedily, give."""
    words = [w.encode() for t in corpus for w in t.split(" ") if w] + [b" hello", b" world", b" the", b" word"] * 9
    tokens = [bytes([b]) for b in range(256)]
    pieces = [[bytes([b]) for b in w] for w in words]
    while len(tokens) < 420:
        count = {}
        for p in pieces:
            for a, b in zip(p, p[1:]):
                count[a + b] = count.get(a + b, 0) + 1
        best = max((n, k) for k, n in count.items() if k not in tokens)[1]
        tokens.append(best)
        for p in pieces:
            i = 0
            while i + 1 < len(p):
                if p[i] + p[i + 1] == best:
                    p[i:i + 2] = [best]
                i += 1
    special = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(["<unk>", "<s>", "</s>", "[INST]"])]
    return {"config": {"pattern": TEKKEN, "num_vocab_tokens": 420, "default_vocab_size": 410, "default_num_special_tokens": 10,
                       "version": "v11"},
            "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(tokens)],
            "special_tokens": special}


def tekken_golden(content, corpus):
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in content["vocab"][:400]}
    engine = tiktoken.Encoding("small", pat_str=TEKKEN, mergeable_ranks=ranks, special_tokens={})

    def encode(text):
        return [i + 10 for i in engine.encode(text, disallowed_special=())]

    return golden_of(corpus, encode, None, lambda ids: engine.decode([i - 10 for i in ids]), [])


def isolated(*patterns):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
                                   + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def split_rules():
    cjk = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
    punctuation = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
    return {"tekken": isolated(TEKKEN), "qwen2": isolated(ONE_DIGIT),
            "deepseek-coder": isolated("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", cjk, r"\p{N}"),
            "deepseek-llm": isolated("[\r\n]", r"\s?[" + LETTERS + "]+", punctuation, r"\s+$", cjk, r"\p{N}"),
            "deepseek-v3": isolated(
                r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")}


def main():
    corpus = texts()
    golden = {"texts": corpus}
    for name, data in sentencepiece_models(corpus).items():
        open(os.path.join(SMALL, name), "wb").write(data)
        golden[name] = sentencepiece_golden(data, corpus)
    for name, content in json_tokenizers(corpus).items():
        text = json.dumps(content, separators=(",", ":"))
        open(os.path.join(SMALL, name), "w").write(text + "\n")
        golden[name] = json_golden(text, corpus)
    content = tekken(corpus)
    json.dump(content, open(os.path.join(SMALL, "tekken.json"), "w"), separators=(",", ":"))
    golden["tekken.json"] = tekken_golden(content, corpus)
    # A rank file of a size that nobody knows: a seed for fuzzing.
    with open(os.path.join(SMALL, "few.tiktoken"), "w") as f:
        f.writelines("%s %d\n" % (t["token_bytes"], t["rank"]) for t in content["vocab"][250:300])
    json.dump(golden, open(os.path.join(HERE, "pieces.json"), "w"), separators=(",", ":"))
    strings = json.load(open(os.path.join(HERE, "strings.json")))
    strings = [s for s in strings if not any(unicodedata.category(c) == "Cn" for c in s["text"])]
    rules = {name: [[s["i"], [len(p) for p, _ in rule.pre_tokenize_str(s["text"])]] for s in strings]
             for name, rule in split_rules().items()}
    json.dump(rules, open(os.path.join(HERE, "split_rules.json"), "w"), separators=(",", ":"))


if __name__ == "__main__":
    main()
