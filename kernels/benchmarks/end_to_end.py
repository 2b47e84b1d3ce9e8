"""Decoding of a random-weights model of about a billion parameters, with and without speculation."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
PROMPT = list(range(100, 140)) * 4  # repeats, so that n-gram drafting has something to find


def run(until: float) -> dict[str, Any]:
    """Tokens per second of greedy decoding: plain, and with n-gram drafts; outputs must be equal.

    Neither begins after ``until`` (monotonic seconds).
    """
    try:
        from specdec import LLM, SamplingParams
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        return {"engine": f"not available ({error})"}
    import torch

    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        config = LlamaConfig(**{k: v for k, v in SHAPE.items() if k != "architectures"})
        model = LlamaForCausalLM(config).to(torch.bfloat16)
        model.save_pretrained(Path(folder))
        del model
        texts = {}
        for name, speculative in (("plain", None), ("ngram k=4", {"method": "ngram", "num_speculative_tokens": 4})):
            if time.monotonic() > until:
                out[name] = "no time left"
                continue
            try:
                llm = LLM(model=folder, speculative_config=speculative)
                parameters = SamplingParams(temperature=0.0, max_tokens=256, ignore_eos=True)
                llm.generate([PROMPT], parameters)  # warm up
                torch.cuda.synchronize()
                start = time.monotonic()
                outputs = llm.generate([PROMPT], parameters)
                torch.cuda.synchronize()
                texts[name] = list(outputs[0].token_ids)
                out[name] = f"{len(texts[name]) / (time.monotonic() - start):.1f} tokens/s"
                del llm
                torch.cuda.empty_cache()
            except Exception as error:  # the kernels' results above must not be lost to an engine problem
                out[name] = f"failed: {type(error).__name__}: {error}"[:300]
        if len(texts) == 2:
            plain, drafted = texts.values()
            same = next((i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b), len(plain))
            out["equal greedy tokens"] = f"{same} of {len(plain)} (bf16 forwards of different width may part)"
    return out
