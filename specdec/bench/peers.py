"""Other ways to decode the same target, for comparison: transformers' own generate, and flashspec when installed."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from typing import Any

import torch

from specdec.bench.samples import Sample


def load_stock(path: str, dtype: torch.dtype) -> Any:
    """An untouched copy of the target, as transformers loads it."""
    from transformers import AutoModelForCausalLM

    from specdec.model.load.locate import quiet_transformers

    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True, trust_remote_code=False)
    model.generation_config.eos_token_id = None  # every mode runs to max_tokens
    model.generation_config.pad_token_id = 0
    return model.eval()


class _ForwardCounter:
    """Counts calls of a model while it is entered."""

    def __init__(self, model: Any) -> None:
        self.model, self.calls = model, 0

    def __enter__(self) -> _ForwardCounter:
        self.handle = self.model.register_forward_pre_hook(self._count)
        return self

    def _count(self, *_: Any) -> None:
        self.calls += 1

    def __exit__(self, *_: Any) -> None:
        self.handle.remove()


class TransformersMode:
    """``model.generate``, plain or with prompt lookup."""

    peer = True

    def __init__(self, model: Any, num_drafts: int | None = None, name: str = "transformers") -> None:
        self.model, self.num_drafts = model, num_drafts
        self.name = name if num_drafts is None else f"{name} lookup k={num_drafts}"

    def generate(self, token_ids: Sequence[int], temperature: float, seed: int, max_tokens: int) -> Sample:
        with _ForwardCounter(self.model) as counter:
            outputs, seconds = self._run([token_ids], temperature, seed, max_tokens)
        return Sample(outputs[0].tolist(), seconds, counter.calls)

    def _run(
        self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, max_tokens: int
    ) -> tuple[torch.Tensor, float]:
        """(new tokens [len(prompts), max_tokens], seconds); shorter prompts are padded on the left."""
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        options: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            options = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        if self.num_drafts is not None:
            options["prompt_lookup_num_tokens"] = self.num_drafts
        torch.manual_seed(seed)
        with torch.inference_mode():
            start = time.perf_counter()
            out = self.model.generate(ids, attention_mask=mask, max_new_tokens=max_tokens, **options)
            seconds = time.perf_counter() - start
        return out[:, width:], seconds


class TransformersBatches(TransformersMode):
    """Plain ``model.generate``, which also takes several prompts at once (prompt lookup takes one)."""

    def generate_together(
        self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, max_tokens: int
    ) -> tuple[int, float]:
        """(tokens, seconds) of all prompts in one batch."""
        out, seconds = self._run(prompts, temperature, seed, max_tokens)
        return out.numel(), seconds


class FlashspecMode:
    """flashspec's engine with its n-gram drafter."""

    peer = True

    def __init__(self, model: Any, num_drafts: int) -> None:
        self.model, self.num_drafts, self.name = model, num_drafts, f"flashspec ngram k={num_drafts}"

    def generate(self, token_ids: Sequence[int], temperature: float, seed: int, max_tokens: int) -> Sample:
        from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
        from flashspec.engine import NgramDrafter, TargetModel

        sampling = SamplingConfig(temperature=temperature, gamma=self.num_drafts, seed=seed)
        config = FlashSpecConfig(
            device="cpu", drafter_strategy="bandit", bandit=BanditConfig(n_arms=1), sampling=sampling
        )
        target = TargetModel("target", torch.device("cpu"), self.model.dtype, model=self.model)
        engine = SpeculativeEngine(config, [NgramDrafter()], target)
        with torch.inference_mode(), _ForwardCounter(self.model) as counter:
            start = time.perf_counter()
            result = engine.generate(torch.tensor([list(token_ids)]), max_new_tokens=max_tokens, eos_token_ids=())
            seconds = time.perf_counter() - start
        return Sample(result.output_ids[0].tolist(), seconds, counter.calls)


def peer_modes(names: Sequence[str], path: str, dtype: torch.dtype, lookup: Sequence[int]) -> list[Any]:
    """The peers named (``transformers``, ``lookup``, ``flashspec``), sharing one stock model in the target's dtype.

    ``transformers-float32`` has a float32 copy: where the processor has no bfloat16 arithmetic that is the faster one.

    Raises ``ModuleNotFoundError`` for a peer that is not installed.
    """
    if not names:
        return []
    if "flashspec" in names and importlib.util.find_spec("flashspec") is None:
        raise ModuleNotFoundError("flashspec is not installed", name="flashspec")
    modes: list[Any] = []
    if "transformers-float32" in names:
        modes.append(TransformersBatches(load_stock(path, torch.float32), name="transformers-float32"))
        if len(names) == 1:
            return modes
    model = load_stock(path, dtype)
    if "transformers" in names:
        modes.insert(0, TransformersBatches(model))
    if "lookup" in names:
        modes += [TransformersMode(model, k) for k in lookup]
    if "flashspec" in names:
        modes += [FlashspecMode(model, k) for k in lookup]
    return modes
