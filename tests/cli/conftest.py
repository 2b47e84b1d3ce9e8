"""Running verbs in this process, and a small project of checkpoints to run them on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from specdec.cli.main import main

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
EAGLE3 = {
    **TARGET,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 128,
    "eagle_aux_hidden_state_layer_ids": [2, 6, 9],
}
RUN = """schema_version: 1
target: {model: ./target, dtype: bfloat16, max_model_len: 1024}
speculative: {method: eagle3, model: ./draft, num_speculative_tokens: 3}
engine: {max_num_seqs: 4}
"""


TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}w7"


@dataclass
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def specdec(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run ``specdec VERB ...`` in this process."""

    def run(*args: str) -> Outcome:
        capsys.readouterr()
        code = main([str(a) for a in args])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a target, an EAGLE-3 draft and run.yaml; the working directory of the test."""
    for name, config in (("target", TARGET), ("draft", EAGLE3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "run.yaml").write_text(RUN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A random two-layer llama over the words w0..w59, with a chat template that appends w7."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, eos_token_id=None,
        bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("checkpoint")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(60)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE).save_pretrained(folder)
    return folder
