"""Writes a model folder that loads in milliseconds: two layers of fixed pseudo-random weights, one
token per byte. Its answers mean nothing, but they depend on every token before them: a lost,
doubled or wrong token shows. Standard library only."""
import json
import os
import random
import struct

DIM, FFN, HEADS, KV_HEADS, LAYERS, CONTEXT = 64, 128, 4, 2, 2, 65536
TURN_START, TURN_END, BEGIN, VOCABULARY = 256, 257, 258, 264

CHAT_TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}")


def byte_letters():
    """The byte-level alphabet: the character that stands for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, spare = {}, 256
    for byte in range(256):
        if byte in printable:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(spare)
            spare += 1
    return letters


def tensors(seed):
    draw = random.Random(seed)

    def matrix(rows, columns, scale):
        return (rows, columns), struct.pack(
            f"<{rows * columns}f", *(draw.gauss(0, scale) for _ in range(rows * columns)))

    def ones(length):
        return (length,), struct.pack(f"<{length}f", *([1.0] * length))

    head_dim = DIM // HEADS
    yield "model.embed_tokens.weight", matrix(VOCABULARY, DIM, 1.0)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", ones(DIM)
        yield at + "self_attn.q_proj.weight", matrix(DIM, DIM, 0.3)
        yield at + "self_attn.k_proj.weight", matrix(KV_HEADS * head_dim, DIM, 0.3)
        yield at + "self_attn.v_proj.weight", matrix(KV_HEADS * head_dim, DIM, 0.3)
        yield at + "self_attn.o_proj.weight", matrix(DIM, DIM, 0.3)
        yield at + "post_attention_layernorm.weight", ones(DIM)
        yield at + "mlp.gate_proj.weight", matrix(FFN, DIM, 0.3)
        yield at + "mlp.up_proj.weight", matrix(FFN, DIM, 0.3)
        yield at + "mlp.down_proj.weight", matrix(DIM, FFN, 0.3)
    yield "model.norm.weight", ones(DIM)
    yield "lm_head.weight", matrix(VOCABULARY, DIM, 0.3)


def write_tensors(path, named):
    header, data = {}, b""
    for name, (shape, raw) in named:
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def split(folder, shards, seed=1):
    """Puts the weights of a folder that write() made into several files and an index."""
    os.remove(os.path.join(folder, "model.safetensors"))
    index = {}
    everything = list(tensors(seed))
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = everything[shard::shards]
        write_tensors(os.path.join(folder, name), part)
        index.update({tensor: name for tensor, _ in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)


def write_tokenizer(folder):
    vocabulary = {letter: byte for byte, letter in byte_letters().items()}
    added = [{"id": i, "content": text, "special": True, "lstrip": False, "rstrip": False,
              "single_word": False, "normalized": False}
             for i, text in ((TURN_START, "<|start|>"), (TURN_END, "<|end|>"), (BEGIN, "<s>"))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump({"version": "1.0", "added_tokens": added, "normalizer": None,
                   "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                   "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}, file)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"bos_token": "<s>", "eos_token": "<|end|>", "add_bos_token": True,
                   "chat_template": CHAT_TEMPLATE}, file)


def write(folder, seed=1):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                   "hidden_size": DIM, "intermediate_size": FFN, "num_attention_heads": HEADS,
                   "num_key_value_heads": KV_HEADS, "num_hidden_layers": LAYERS,
                   "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
                   "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
                   "tie_word_embeddings": False, "bos_token_id": BEGIN, "eos_token_id": TURN_END,
                   "torch_dtype": "float32"}, file)
    write_tensors(os.path.join(folder, "model.safetensors"), tensors(seed))
    write_tokenizer(folder)
    return folder
